/** What every host of a launch plan keeps, whatever the family (docs/export.md). */
export const rules: readonly string[] = [
  'Before the first launch every rank allocates its windows at multiples of their alignment, sets them to their start ' +
    'values, maps the windows of all other ranks, and waits until all ranks have come so far.',
  'Kernels are loaded before the first launch (cuFuncLoad, or CUDA_MODULE_LOADING=EAGER): one that is loaded while another ' +
    'waits for a peer may wait for that one to end.',
  'A round is the launches in their order on one stream; the experts run before the first of combineSend. All ranks make ' +
    'the same rounds, those without tokens too. Rounds follow each other without waiting, and may be captured as a graph.',
  'Nothing is reset between rounds: kernels count them in the window, and flags carry these epochs. The host writes ' +
    "nothing into a window, except the experts' rows into received.output.",
  'topkIds stay as they are until the round has ended; rows and weights may be written again behind the last launch of ' +
    'dispatchSend, and received.output is read until the round has ended.',
  'What was received stays until the first launch of the next round. Slots without a local expert are not written.',
  'A wait ends after `limit` microseconds. Then the first word of failure is not 0, no later launch waits, and results mean ' +
    'nothing: all ranks allocate their windows anew.',
  'Windows are freed when the last round of every rank has ended.',
];
