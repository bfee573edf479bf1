const warned = new Set<string>();

/** A warning on stderr, once in this process, of what costs time and no results. */
export function warnOnce(code: string, message: string): void {
  if (warned.has(message)) return;
  warned.add(message);
  process.emitWarning(message, { code });
}
