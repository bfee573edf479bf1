/** A line that is rewritten on a terminal; elsewhere one after two seconds, and then one every few. `null` takes it away. */
export function progressOn(out: NodeJS.WriteStream): (text: string | null) => void {
  const [first, every] = out.isTTY ? [100, 100] : [2000, 5000];
  let next = performance.now() + first;
  let shown = false;
  return (text) => {
    if (text === null) {
      if (shown && out.isTTY) out.write('\r\x1b[K');
      shown = false;
      return;
    }
    const now = performance.now();
    if (now < next) return;
    next = now + every;
    shown = true;
    out.write(out.isTTY ? `\r\x1b[K${text.slice(0, (out.columns ?? 80) - 1)}` : `${text}\n`);
  };
}
