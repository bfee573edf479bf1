import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { afterEach, describe, expect, it } from 'vitest';
import {
  allowDescriptorsToBeTaken,
  bootId,
  closeDescriptor,
  startTime,
  takeDescriptor,
} from '../../../src/gpu/cuda/posix.js';
import { needing } from '../../needs.js';

const children: ChildProcess[] = [];
afterEach(() => {
  for (const child of children.splice(0)) child.kill('SIGKILL');
});

/** A process that holds a file open and says which descriptor that is. */
async function holder(): Promise<{ child: ChildProcess; pid: number; fd: number }> {
  const script = `const fs = require('fs');
    const name = require('os').tmpdir() + '/heddle-' + process.pid;
    fs.writeFileSync(name, 'woven');
    const fd = fs.openSync(name); fs.unlinkSync(name);
    console.log(fd); setInterval(() => {}, 1000);`;
  const child = spawn(process.execPath, ['-e', script], { stdio: ['ignore', 'pipe', 'inherit'] });
  children.push(child);
  const [line] = (await once(child.stdout!, 'data')) as [Buffer];
  return { child, pid: child.pid!, fd: Number(line.toString()) };
}

describe('processes', () => {
  it('are told apart by when they started', async () => {
    const own = startTime(process.pid);
    expect(own).toBeGreaterThan(0);
    const { child, pid } = await holder();
    expect(startTime(pid)).toBeGreaterThan(own!);
    child.kill('SIGKILL');
    await once(child, 'exit');
    expect(startTime(pid)).toBeNull();
  });

  it('share the boot id of the machine', () => {
    expect(bootId()).toMatch(/^[0-9a-f-]{36}$/);
  });
});

describe('taking a descriptor of another process', needing('descriptors'), () => {
  it('opens the same file', async () => {
    allowDescriptorsToBeTaken();
    const { pid, fd } = await holder();
    const taken = takeDescriptor(pid, fd);
    expect(taken.ok).toBe(true);
    if (!taken.ok) return;
    expect(readFileSync(taken.fd, 'utf8')).toBe('woven');
    closeDescriptor(taken.fd);
    expect(() => closeDescriptor(taken.fd)).toThrow(/could not be closed/);
  });

  it('tells a closed descriptor from a process that has ended', async () => {
    const { child, pid } = await holder();
    expect(takeDescriptor(pid, 4000)).toMatchObject({ ok: false, why: 'closed' });
    child.kill('SIGKILL');
    await once(child, 'exit');
    expect(takeDescriptor(pid, 0)).toMatchObject({ ok: false, why: 'ended' });
  });
});
