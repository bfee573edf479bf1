/** What every HTML report has in common: its style, and the script that draws its charts. */
export * from './parts.js';
export { script, style } from './style.js';
