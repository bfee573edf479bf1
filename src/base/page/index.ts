/** What every HTML report has in common: its frame, its style, and the script that draws its charts. */

export { page } from './page.js';
export { type Chart, json, type Series, text } from './parts.js';
