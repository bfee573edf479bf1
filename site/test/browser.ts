/** The built site, served as a server for files would, and a browser to look at it. */
import { existsSync, readFileSync, statSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { extname, join, resolve } from 'node:path';
import { gzipSync } from 'node:zlib';
import { type Browser, chromium, type Page } from 'playwright-core';
import { findChromium } from '../../test/needs.js';

export const dist = resolve(import.meta.dirname, '../dist');

export const openBrowser = (): Promise<Browser> =>
  // Containers let no program make a sandbox, and have little of /dev/shm.
  chromium.launch({ executablePath: findChromium()!, args: ['--no-sandbox', '--disable-dev-shm-usage'] });

const types: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript',
  '.css': 'text/css',
  '.png': 'image/png',
  '.svg': 'image/svg+xml',
  '.json': 'application/json',
};

export interface Served {
  readonly url: string;
  /** Bytes of the bodies that went out, compressed. */
  sent: number;
  close(): void;
}

export async function serve(): Promise<Served> {
  const server = createServer(({ url }, response) => {
    const { pathname } = new URL(url!, 'http://site');
    const path = [pathname, `${pathname}.html`, join(pathname, 'index.html')]
      .map((name) => join(dist, decodeURIComponent(name)))
      .find((name) => existsSync(name) && statSync(name).isFile());
    if (path === undefined) {
      response.writeHead(404).end();
      return;
    }
    const body = gzipSync(readFileSync(path));
    served.sent += body.byteLength;
    response.writeHead(200, {
      'content-type': types[extname(path)] ?? 'text/plain; charset=utf-8',
      'content-encoding': 'gzip',
    });
    response.end(body);
  });
  await new Promise<void>((ready) => server.listen(0, '127.0.0.1', ready));
  const { port } = server.address() as AddressInfo;
  const served: Served = { url: `http://127.0.0.1:${port}`, sent: 0, close: () => server.close() };
  return served;
}

/** What a page complains about while it is open. */
export function complaintsOf(page: Page): string[] {
  const complaints: string[] = [];
  page.on('console', (message) => {
    if (['error', 'warning'].includes(message.type())) complaints.push(message.text());
  });
  page.on('pageerror', ({ message }) => complaints.push(message));
  page.on('requestfailed', (request) => {
    const why = request.failure()?.errorText ?? '';
    // What a page fetched ahead is dropped when it is left.
    if (why !== 'net::ERR_ABORTED') complaints.push(`${why} ${request.url()}`);
  });
  page.on('response', (response) => {
    if (response.status() >= 400) complaints.push(`${response.status()} ${response.url()}`);
  });
  return complaints;
}
