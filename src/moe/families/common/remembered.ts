/** A process rarely has more layers of different shapes at a time; what falls out is only made again. */
const mostKept = 64;

/** A function that makes something of a plain value, and gives the same thing again for an equal value. */
export function remembered<K extends object, V>(make: (key: K) => V): (key: K) => V {
  const kept = new Map<string, V>();
  return (key) => {
    const text = JSON.stringify(key);
    const known = kept.get(text);
    if (known !== undefined) return known;
    const made = make(key);
    const [oldest] = kept.keys();
    if (kept.size === mostKept) kept.delete(oldest!);
    kept.set(text, made);
    return made;
  };
}
