import { spawnSync } from 'node:child_process';
import { mkdirSync, realpathSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { Command } from '../../src/cli/commander.js';
import { register, render } from '../../src/cli/doctor.js';
import { listText } from '../../src/cli/fabric.js';
import { listNics } from '../../src/net/fabric/index.js';
import { libfabric } from '../../src/net/fabric/libfabric/bindings.js';
import { linkOf } from '../../src/net/fabric/libfabric/nics.js';
import { nearestFirst } from '../../src/net/fabric/libfabric/provider.js';
import { type Diagnosis, examineNics } from '../../src/tools/doctor/index.js';
import { buildStandIn } from '../gpu/cuda/stand-in.js';
import { needing } from '../needs.js';
import { temporaryFolder } from '../temporary.js';
import { transpiled } from '../tree.js';

/** Looking at all its providers takes longer than all else. */
const noLibfabric = { HEDDLE_LIBFABRIC: '/nope/none.so' };

describe('heddle doctor', () => {
  async function diagnosis(): Promise<Diagnosis> {
    const written: string[] = [];
    vi.spyOn(process.stdout, 'write').mockImplementation((text) => written.push(String(text)) > 0);
    vi.spyOn(process.stderr, 'write').mockReturnValue(true);
    const before = process.exitCode;
    try {
      const program = new Command('heddle');
      register(program.command('doctor'));
      await program.parseAsync(['node', 'heddle', 'doctor', '--json']);
      const broken = (JSON.parse(written.join('')) as Diagnosis).findings.some(
        ({ state }) => state === 'broken',
      );
      expect(process.exitCode).toBe(broken ? 1 : 0);
    } finally {
      process.exitCode = before;
      vi.restoreAllMocks();
    }
    return JSON.parse(written.join(''));
  }

  it('prints its findings as JSON, and fails only where one is broken', async () => {
    const { usable, summary, findings } = await diagnosis();
    expect(usable).toBe(true);
    expect(summary.join('\n')).toMatch(/Simulator/);
    const names = findings.map(({ name }) => name);
    expect(new Set(names).size).toBe(names.length);
    for (const name of ['Simulator', 'NVIDIA driver', 'libfabric', 'Shared memory', 'NICs'])
      expect(names).toContain(name);
    for (const { state, remedy } of findings) expect(remedy === null).toBe(state === 'found');
  });

  /** In a process of its own. */
  function examined(env: Readonly<Record<string, string>>) {
    const child = spawnSync(process.execPath, [transpiled('src/cli/main.ts'), 'doctor', '--json'], {
      encoding: 'utf8',
      env: { ...process.env, ...env },
    });
    const { findings, usable } = JSON.parse(child.stdout) as Diagnosis;
    return {
      status: child.status,
      usable,
      found: (name: string) => findings.find((one) => one.name === name),
    };
  }

  it('says nothing against an NVRTC that a variable leaves out', needing('nvcc'), () => {
    const folder = temporaryFolder(onTestFinished);
    for (const name of ['libnvrtc.so.12', 'libnvrtc.so.13']) writeFileSync(join(folder, name), 'no library');
    const { found } = examined({ ...noLibfabric, LD_LIBRARY_PATH: folder });
    expect(found('CUDA compiler')).toMatchObject({ state: 'broken' });
    const other = examined({ ...noLibfabric, LD_LIBRARY_PATH: folder, HEDDLE_COMPILER: 'nvcc' });
    expect(other.found('CUDA compiler')).toMatchObject({ state: 'found' });
  });

  it(
    'tries the libfabric that a variable names, and the network that proxies would take over it',
    needing('libfabric'),
    () => {
      const folder = temporaryFolder(onTestFinished);
      const other = join(folder, 'other.so');
      symlinkSync(libfabric().path, other);
      const { found } = examined({ HEDDLE_LIBFABRIC: other });
      expect(found('libfabric')).toMatchObject({
        state: 'found',
        detail: expect.stringContaining(`(${other}); providers`),
      });
      expect(found('Network of proxies')).toMatchObject({ state: 'found' });
    },
  );

  it('ends with 1 where variables ask for what there is not, and says which', () => {
    const env = {
      ...{ HEDDLE_DEVICE: 'gpu', HEDDLE_WINDOWS: 'curtains' },
      ...{ HEDDLE_CACHE: '/dev/null/cache', HEDDLE_TUNING: '/nope/tuning.json', HEDDLE_COMPILER: 'gcc' },
      ...noLibfabric,
      ...{ HEDDLE_NVTX: '/nope/libnvtx.so', HEDDLE_WIRES: 'copper', HEDDLE_PROXY_CPUS: '3,x' },
    };
    const { status, usable, found } = examined(env);
    expect(status).toBe(1);
    expect(usable).toBe(true);
    expect(found('CUDA compiler')).toMatchObject({
      state: 'broken',
      detail: 'HEDDLE_COMPILER is "gcc"; it must be auto, nvrtc or nvcc',
    });
    expect(found('libfabric')).toMatchObject({
      state: 'broken',
      detail: expect.stringContaining('/nope/none.so'),
      remedy: 'Set HEDDLE_LIBFABRIC otherwise, or unset it',
    });
    const { state, detail } = found('Settings')!;
    expect(state).toBe('broken');
    expect(detail.split('; HEDDLE_')).toEqual([
      expect.stringMatching(/^HEDDLE_DEVICE: HEDDLE_DEVICE is "gpu"; it must be one of 'cuda', 'sim'/),
      expect.stringMatching(/^WINDOWS: HEDDLE_WINDOWS is "curtains"; it must be one of 'auto'/),
      expect.stringMatching(/^CACHE: \/dev\/null\/cache cannot be made: /),
      expect.stringMatching(/^TUNING: tuning file is .*ENOENT/),
      expect.stringMatching(/^NVTX: .*\/nope\/libnvtx\.so/),
      expect.stringMatching(/^WIRES: HEDDLE_WIRES is "copper"; it must be one of 'auto'/),
      expect.stringMatching(/^PROXY_CPUS: HEDDLE_PROXY_CPUS is "3,x"; it must be numbers of processors/),
    ]);
  });

  it('shows what is missing with its remedy, and which GPUs reach each other', () => {
    const gpu = (ordinal: number, access: boolean) => ({
      ordinal,
      name: 'NVIDIA H200',
      capability: [9, 0] as const,
      uuid: '',
      pciBusId: `0000:0${ordinal}:00.0`,
      memoryBytes: 140 * 2 ** 30,
      multiprocessors: 132,
      clockMHz: 1980,
      l2Bytes: 0,
      sharedBytesPerBlock: 0,
      virtualMemory: true,
      posixHandles: true,
      fabricHandles: true,
      ...{ ordersNics: true, flushesNics: true, hostVirtualMemory: true, hostNode: 0 },
      rdmaMemory: true,
      links: { active: 18, version: '4.0', toSwitch: 18, toGpus: {} },
      peers: [{ ordinal: 1 - ordinal, access, atomics: access }],
    });
    const text = render({
      summary: ['GPU: two ranks'],
      usable: true,
      findings: [
        {
          name: 'NCCL',
          state: 'missing',
          detail: 'not found: libnccl.so.2',
          enables: 'baselines',
          remedy: 'pip install it',
        },
      ],
      gpus: [gpu(0, true), gpu(1, false)],
      nics: [],
    });
    expect(text).toContain(
      '– NCCL  not found: libnccl.so.2\n    enables: baselines\n    to have it: pip install it',
    );
    expect(text).toContain(
      'GPU 0  NVIDIA H200  compute 9.0, 132 SMs, 140.0 GiB, 0000:00:00.0, 18 NVLinks (4.0) to a switch',
    );
    expect(text).toContain('     0  ·  A\n     1  –  ·');
  });
});

describe('heddle doctor on a driver that withholds something', needing('cc'), () => {
  let driver: ReturnType<typeof buildStandIn>;
  beforeAll(() => {
    driver = buildStandIn();
  });
  afterAll(() => driver.remove());

  function diagnosis(env: Record<string, string>): Map<string, Diagnosis['findings'][number]> {
    const child = spawnSync(process.execPath, [transpiled('src/cli/main.ts'), 'doctor', '--json'], {
      encoding: 'utf8',
      timeout: 50_000,
      env: {
        ...process.env,
        ...noLibfabric,
        CUDA_MODULE_LOADING: 'EAGER',
        LD_LIBRARY_PATH: driver.folder,
        ...env,
      },
    });
    const { findings } = JSON.parse(child.stdout) as Diagnosis;
    const broken = findings.some(({ state }) => state === 'broken');
    expect(child.status, child.stderr).toBe(broken ? 1 : 0);
    return new Map(findings.map((finding) => [finding.name, finding]));
  }

  it('tells what came of trying fabric handles', () => {
    const refused = diagnosis({ FAKE_COUNT: '1', FAKE_VIRTUAL: '1', FAKE_FABRIC: '800' });
    expect(refused.get('Windows between processes')).toMatchObject({ state: 'found' });
    expect(refused.get('Windows between machines')).toMatchObject({
      state: 'missing',
      detail: expect.stringMatching(
        /^cuMemCreate refuses .*CUDA_ERROR_NOT_PERMITTED \(800\): no IMEX channel/,
      ),
      remedy: expect.stringContaining('nvidia-imex'),
    });
    const offered = diagnosis({ FAKE_COUNT: '1', FAKE_VIRTUAL: '1' });
    expect(offered.get('Windows between machines')).toMatchObject({ state: 'found', remedy: null });
  });

  it('is not taken down by a call that fails', () => {
    // The stand-in knows nothing of what two GPUs are to each other.
    const found = diagnosis({ FAKE_COUNT: '2' });
    expect(found.get('NVIDIA driver')).toMatchObject({ state: 'found' });
    expect(found.get('GPUs')).toMatchObject({
      state: 'broken',
      detail: expect.stringMatching(/^cuDeviceGetP2PAttribute failed/),
    });
  });
});

describe('network interfaces', () => {
  let root: string;
  const put = (path: string, text: string) => {
    const file = join(root, path);
    mkdirSync(join(file, '..'), { recursive: true });
    writeFileSync(file, text);
  };
  beforeEach(() => {
    root = temporaryFolder(onTestFinished);
  });

  it('are read from the system’s tree', () => {
    put('class/infiniband/mlx5_0/ports/1/state', '4: ACTIVE\n');
    put('class/infiniband/mlx5_0/ports/1/rate', '400 Gb/sec (4X NDR)\n');
    put('class/infiniband/mlx5_0/ports/1/link_layer', 'InfiniBand\n');
    put('class/infiniband/mlx5_1/ports/1/state', '1: DOWN\n');
    put('class/infiniband/mlx5_1/ports/2/state', '4: ACTIVE\n');
    put('class/infiniband/rxe0/ports/1/state', '4: ACTIVE\n');
    put('class/infiniband/rxe0/ports/1/rate', '2.5 Gb/sec (1X SDR)\n');
    put('class/infiniband/rxe0/parent', 'eth0\n');
    put('class/net/eth0/operstate', 'up\n');
    put('class/net/eth0/speed', '25000\n');
    put('class/net/eth0/device/vendor', '0x15b3\n');
    put('class/net/lo/operstate', 'unknown\n');
    expect(listNics(root)).toEqual([
      { name: 'mlx5_0', kind: 'rdma', up: true, detail: 'InfiniBand 400 Gb/sec (4X NDR)', place: null },
      { name: 'mlx5_1', kind: 'rdma', up: false, detail: '', place: null },
      { name: 'mlx5_1:2', kind: 'rdma', up: true, detail: '', place: null },
      {
        ...{ name: 'rxe0', kind: 'rdma', up: true, place: null },
        detail: expect.stringMatching(/^soft-RoCE on eth0: .*no measure of speed; .* dma-buf$/),
      },
      {
        name: 'eth0',
        kind: 'net',
        up: true,
        detail: '25000 Mb/s',
        place: join(realpathSync(root), 'class/net/eth0/device'),
      },
    ]);
    const down = listNics(root).map((nic) => ({ ...nic, up: false }));
    expect(listText([], down)).toMatch(/^rxe0, without a link: soft-RoCE on eth0: .*no measure of speed/m);
    expect(examineNics(listNics(root), []).detail).toContain('rxe0 up, soft-RoCE on eth0');
    expect(examineNics(listNics(root), []).enables).toMatch(/^fast transport/);
    const soft = listNics(root).filter(({ name }) => name === 'rxe0');
    expect(examineNics(soft, []).enables).toBe('a trial of verbs between machines');
    // As libfabric calls them; it knows some that the system does not.
    const all = ['mlx5_0', 'mlx5_0-rdm', 'mlx5_1', 'mlx5_2', 'eth0', 'lo'];
    const links = (verbs: string[] | null) => all.map((name) => linkOf(name, root, verbs));
    expect(links(['mlx5_0', 'mlx5_1'])).toEqual(['up', 'up', 'down', null, 'up', null]);
    expect(links(null)).toEqual(['up', 'up', 'down', null, 'up', null]);
    // libibverbs lists one no more that is being removed; the link of another falls.
    put('class/net/eth0/operstate', 'down\n');
    expect(links(['mlx5_1'])).toEqual([null, null, 'down', null, 'down', null]);
  });

  it('are as near to a GPU as the tree of buses says: below its switch, below another, on another socket', () => {
    const [mine, beside, far] = [
      'devices/pci0000:15/0000:15:01.0',
      'devices/pci0000:15/0000:15:03.0',
      'devices/pci0000:97',
    ];
    /** A device of that address, and what in the tree of classes is it. */
    const device = (folder: string, name: string, ...links: string[]) => {
      put(`${folder}/${name}/vendor`, '');
      for (const link of [`bus/pci/devices/${name}`, ...links]) {
        mkdirSync(join(root, link, '..'), { recursive: true });
        symlinkSync(join(root, folder, name), join(root, link));
      }
    };
    device(mine, '0000:18:00.0');
    device(far, '0000:98:00.0', 'class/infiniband/mlx5_0/device');
    device(beside, '0000:19:00.0', 'class/infiniband/mlx5_1/device');
    device(mine, '0000:1a:00.0', 'class/infiniband/mlx5_2/device');
    for (const nic of ['mlx5_0', 'mlx5_1', 'mlx5_2'])
      put(`class/infiniband/${nic}/ports/1/state`, '4: ACTIVE\n');
    const gpu = { ordinal: 0, pciBusId: '0000:18:00.0' };
    expect(examineNics(listNics(root), [gpu], root).detail).toContain('; nearest to GPU 0: mlx5_2');
    // libfabric may call one otherwise, and knows some that the system does not.
    const names = ['efa_0', 'mlx5_0', 'mlx5_1-rdm', 'mlx5_2'];
    expect(nearestFirst(names, gpu.pciBusId, root)).toEqual(['mlx5_2', 'mlx5_1-rdm', 'mlx5_0', 'efa_0']);
    expect(nearestFirst(names, '0000:ff:00.0', root)).toEqual(names);
    expect(nearestFirst(names, undefined, root)).toEqual(names);
  });

  it('are none where the system has no such tree', () => {
    expect(listNics(join(root, 'nowhere'))).toEqual([]);
  });
});
