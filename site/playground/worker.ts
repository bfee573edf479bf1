/** The simulator in a thread of its own: a program without end can be ended, and the page goes on. */
import { explore } from './explore.js';

addEventListener('message', async ({ data }: MessageEvent<{ name: string; text: string }>) => {
  postMessage(await explore(data.name, data.text));
});
