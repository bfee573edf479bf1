/** What the tests use of it; the package ships no types of its own. */
declare module 'amaro' {
  export function transformSync(source: string, options: { mode: 'strip-only' }): { readonly code: string };
}
