/** What the visitor made of each program, kept by the browser; where that keeps nothing, until the page is left. */
const prefix = 'heddle playground: ';

/** Browsers may refuse storage altogether. */
function stored<T>(use: (storage: Storage) => T): T | null {
  try {
    return use(localStorage);
  } catch {
    return null;
  }
}

export const of = (file: string): string | null => stored((storage) => storage.getItem(prefix + file));
export const keep = (file: string, text: string): void => {
  stored((storage) => storage.setItem(prefix + file, text));
};
export const drop = (file: string): void => {
  stored((storage) => storage.removeItem(prefix + file));
};
