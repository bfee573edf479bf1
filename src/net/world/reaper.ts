import { spawn } from 'node:child_process';

/**
 * Reads 'start PID' and 'ended PID' lines. When they end without a 'done', the launcher was killed in a way
 * it could not notice: asks the process groups that remain to end, and then ends them. (No `--` before the
 * negative numbers: dash would not understand it.)
 */
const SCRIPT = `
alive=' '
while read -r word pid; do
  case $word in
    start) alive="$alive-$pid " ;;
    ended) case $alive in *" -$pid "*) alive="\${alive%% -"$pid" *} \${alive#* -"$pid" }" ;; esac ;;
    done) exit 0 ;;
  esac
done
test -z "\${alive# }" && exit 0
kill -TERM $alive
tenths=$1
while [ "$tenths" -gt 0 ]; do
  still=
  for group in $alive; do kill -0 "$group" && still=yes; done
  test -z "$still" && exit 0
  sleep 0.1
  tenths=$((tenths - 1))
done
kill -KILL $alive
`;

/**
 * A small shell that outlives the launcher for as long as it takes to leave no process behind. The ranks
 * cannot be trusted with that: one that never joined, or that spins without returning to its event loop,
 * hears nothing.
 */
export function startReaper(graceMs: number) {
  const shell = spawn('/bin/sh', ['-c', SCRIPT, 'heddle-reaper', String(Math.ceil(graceMs / 100))], {
    detached: true, // out of reach of the terminal's Ctrl-C
    stdio: ['pipe', 'ignore', 'ignore'],
  });
  shell.on('error', () => {}); // no shell: the ranks still notice that the rendezvous is gone
  shell.stdin.on('error', () => {});
  shell.unref();
  const exited = new Promise<void>((resolve) => {
    shell.once('close', () => resolve());
  });
  return {
    started: (pid: number) => shell.stdin.write(`start ${pid}\n`),
    ended: (pid: number) => shell.stdin.write(`ended ${pid}\n`),
    /** Everything has ended. Resolves when the shell has, too. */
    done: (): Promise<void> => {
      shell.stdin.end('done\n');
      return exited;
    },
  };
}
