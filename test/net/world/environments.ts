/** What launchers set for a rank, by launcher. */
export const launchers = {
  heddle: { HEDDLE_RANK: '3', HEDDLE_WORLD: '8', HEDDLE_ADDRESS: '127.0.0.1:29000' },
  torchrun: {
    ...{ RANK: '5', WORLD_SIZE: '16', LOCAL_RANK: '1', LOCAL_WORLD_SIZE: '4' },
    ...{ MASTER_ADDR: 'node1', MASTER_PORT: '29500' },
    ...{ TORCHELASTIC_RUN_ID: 'job7', TORCHELASTIC_RESTART_COUNT: '2' },
  },
  openMpi: {
    ...{ OMPI_COMM_WORLD_RANK: '2', OMPI_COMM_WORLD_SIZE: '4' },
    ...{ OMPI_COMM_WORLD_LOCAL_RANK: '2', OMPI_COMM_WORLD_LOCAL_SIZE: '4' },
    ...{ PMIX_RANK: '2', PMIX_NAMESPACE: 'prterun-node1-77@1' },
  },
  slurm: {
    ...{ SLURM_PROCID: '9', SLURM_STEP_NUM_TASKS: '16', SLURM_NTASKS: '32', SLURM_LOCALID: '1' },
    ...{ SLURM_NNODES: '2', SLURM_STEP_NUM_NODES: '2', SLURM_STEP_NODELIST: 'gpu[003-004]' },
    ...{ SLURM_JOB_ID: '4711', SLURM_STEP_ID: '0', SLURM_LAUNCH_NODE_IPADDR: '10.0.0.1' },
  },
} as const;

type Variables = Readonly<Record<string, string>>;

/** The variables by which launchers start two ranks, a node each, of which rank 0 is at `host` and meets the other at `port`. */
export const launchersAt = (host: string): Record<string, (rank: number, port: number) => Variables> => ({
  'torchrun --nnodes 2 --nproc-per-node 1': (rank, port) => ({
    ...{ RANK: `${rank}`, WORLD_SIZE: '2', LOCAL_RANK: '0', LOCAL_WORLD_SIZE: '1' },
    ...{ MASTER_ADDR: host, MASTER_PORT: `${port - 1000}` },
    ...{ TORCHELASTIC_RUN_ID: 'job', TORCHELASTIC_RESTART_COUNT: '0' },
  }),
  'srun --nodes 2 --ntasks-per-node 1': (rank) => ({
    ...{ SLURM_PROCID: `${rank}`, SLURM_LOCALID: '0', SLURM_STEP_NUM_TASKS: '2', SLURM_STEP_NUM_NODES: '2' },
    ...{ SLURM_STEP_NODELIST: `${host},other`, SLURM_JOB_ID: `${process.pid}`, SLURM_STEP_ID: '0' },
  }),
  'mpirun --map-by node': (rank, port) => ({
    ...{ OMPI_COMM_WORLD_RANK: `${rank}`, OMPI_COMM_WORLD_SIZE: '2', OMPI_COMM_WORLD_LOCAL_RANK: '0' },
    ...{ OMPI_COMM_WORLD_LOCAL_SIZE: '1', PMIX_NAMESPACE: 'job', HEDDLE_ADDRESS: `${host}:${port}` },
  }),
  'mpiexec, by PMI': (rank, port) => ({
    ...{ PMI_RANK: `${rank}`, PMI_SIZE: '2', MPI_LOCALRANKID: '0', HEDDLE_ADDRESS: `${host}:${port}` },
  }),
  'by hand': (rank, port) => ({
    ...{ HEDDLE_RANK: `${rank}`, HEDDLE_WORLD: '2', HEDDLE_ADDRESS: `${host}:${port}` },
  }),
});
