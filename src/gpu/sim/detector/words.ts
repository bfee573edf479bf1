/** Hints in the words of the language that a kernel is written in. They are made in those of TypeScript. */

type Language = 'TypeScript' | 'CUDA' | 'Python' | 'PTX';

/** By the file of a place: 'all-reduce.cu:19:5'. A place in no file is one of TypeScript, too. */
function languageOf(where: string): Language {
  const [, ending = ''] = /\.(\w+):\d+/.exec(where) ?? [];
  if (ending === 'ptx') return 'PTX';
  if (ending === 'py') return 'Python';
  return /^(cu|cuh|h|hpp|hh|hxx|inl|c|cc|cpp|cxx|inc)$/.test(ending) ? 'CUDA' : 'TypeScript';
}

interface Word {
  readonly is: RegExp;
  readonly ptx: string;
  readonly CUDA?: string;
  readonly Python?: string;
}

const words: readonly Word[] = [
  { is: /g\.fence\(scope, \{ order: 'seq_cst' \}\)/g, ptx: 'fence.sc', CUDA: '__threadfence_system()' },
  { is: /g\.fence\('cta'\)/g, ptx: 'fence.acq_rel.cta', CUDA: '__threadfence_block()' },
  { is: /g\.fence\('gpu'\)/g, ptx: 'fence.acq_rel.gpu', CUDA: '__threadfence()' },
  { is: /g\.fence\('sys'\)/g, ptx: 'fence.acq_rel.sys', CUDA: '__threadfence_system()' },
  { is: /g\.fence\(…\)|g\.fence(?!\()/g, ptx: 'a fence' },
  { is: /g\.barrier\(\)/g, ptx: 'bar.sync', CUDA: '__syncthreads()', Python: 'tl.debug_barrier()' },
  { is: /g\.cluster\.barrier\(\)/g, ptx: 'barrier.cluster', CUDA: 'cluster.sync()' },
  { is: /g\.proxyFence\('\w+'\)/g, ptx: 'fence.proxy.async' },
  { is: /g\.awaitPrevious\(\)/g, ptx: 'griddepcontrol.wait', CUDA: 'cudaGridDependencySynchronize()' },
  { is: /g\.async\.commit/g, ptx: 'cp.async.commit_group' },
  { is: /g\.bulk\.commit/g, ptx: 'cp.async.bulk.commit_group' },
  { is: /g\.async\.wait/g, ptx: 'cp.async.wait_group' },
  { is: /g\.bulk\.waitReads|\bwaitReads/g, ptx: 'cp.async.bulk.wait_group.read' },
  { is: /g\.bulk\.wait/g, ptx: 'cp.async.bulk.wait_group' },
  { is: /g\.wgmma\.wait/g, ptx: 'wgmma.wait_group' },
  { is: /g\.mbarrier\.init/g, ptx: 'mbarrier.init' },
  { is: /\{ order: 'relaxed', scope: 'gpu' \}/g, ptx: 'ld.relaxed.gpu' },
];

export function inWordsOf(where: string, text: string): string {
  const language = languageOf(where);
  if (language === 'TypeScript') return text;
  return words.reduce((said, word) => {
    const own = language === 'PTX' ? undefined : word[language];
    return said.replace(word.is, own ?? word.ptx);
  }, text);
}
