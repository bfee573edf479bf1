/** The members of an object that it has a value for, of these names: options that are handed on as they were given. */
export function said<T extends object, const N extends keyof T>(
  of: T,
  ...names: readonly N[]
): { readonly [K in N]?: Exclude<T[K], undefined> } {
  const known = names.flatMap((name) => (of[name] === undefined ? [] : [[name, of[name]] as const]));
  return Object.fromEntries(known) as { [K in N]?: Exclude<T[K], undefined> };
}
