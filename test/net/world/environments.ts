/** What launchers set for a rank, by launcher. */
export const launchers = {
  heddle: { HEDDLE_RANK: '3', HEDDLE_WORLD: '8', HEDDLE_ADDRESS: '127.0.0.1:29000' },
  torchrun: {
    RANK: '5',
    WORLD_SIZE: '16',
    LOCAL_RANK: '1',
    LOCAL_WORLD_SIZE: '4',
    MASTER_ADDR: 'node1',
    MASTER_PORT: '29500',
    TORCHELASTIC_RUN_ID: 'job7',
    TORCHELASTIC_RESTART_COUNT: '2',
  },
  openMpi: {
    OMPI_COMM_WORLD_RANK: '2',
    OMPI_COMM_WORLD_SIZE: '4',
    OMPI_COMM_WORLD_LOCAL_RANK: '2',
    OMPI_COMM_WORLD_LOCAL_SIZE: '4',
    PMIX_RANK: '2',
    PMIX_NAMESPACE: 'prterun-node1-77@1',
  },
  slurm: {
    SLURM_PROCID: '9',
    SLURM_STEP_NUM_TASKS: '16',
    SLURM_NTASKS: '32',
    SLURM_LOCALID: '1',
    SLURM_NNODES: '2',
    SLURM_STEP_NUM_NODES: '2',
    SLURM_STEP_NODELIST: 'gpu[003-004]',
    SLURM_JOB_ID: '4711',
    SLURM_STEP_ID: '0',
    SLURM_LAUNCH_NODE_IPADDR: '10.0.0.1',
  },
} as const;
