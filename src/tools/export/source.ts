/** `PREFIX.c`: the player, a shape for it as an array, and the functions of `PREFIX.h` over both. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { renamed } from './header.js';
import type { LaunchPlan, PlacedTensor } from './launch-plan.js';
import { argumentsOf, type Images, memoryOf, packShape } from './pack.js';
import { type Stage, stages } from './rounds.js';

/** The pointers in `struct PREFIX_slots`; payloads are bytes. */
const pointers: Readonly<Record<string, string>> = {
  experts: 'const int32_t *',
  weights: 'const float *',
  counts: 'const uint32_t *',
  output: 'void *',
};

/** The player's sources, which the package holds as they are. */
const player = (name: string): string =>
  readFileSync(join(import.meta.dirname, '../../../src/tools/export', name), 'utf8');

/** Words of 64 bits, as C has them. */
function arrayOf(bytes: Buffer): string {
  const perLine = 6;
  const words = Array.from(
    { length: bytes.length / 8 },
    (_, i) => `0x${bytes.readBigUInt64LE(8 * i).toString(16)}`,
  );
  const lines = Array.from({ length: Math.ceil(words.length / perLine) }, (_, i) =>
    words.slice(perLine * i, perLine * (i + 1)).join(', '),
  );
  return `static const uint64_t heddle_words[] = {\n${lines.map((line) => `  ${line},`).join('\n')}\n};`;
}

/** A function that enqueues the stages `first` to `last`. */
const call = (name: string, first: Stage, last: Stage): string => `
const char *heddle_${name}(heddle_rank *rank, const struct heddle_round *round, void *stream) {
  return heddle_stages(rank, ${stages.indexOf(first)}, ${stages.indexOf(last)}, round, stream);
}`;

const mask = `const char *heddle_mask(heddle_rank *rank, const uint32_t out[4]) { return heddle_player_mask(rank->player, out); }

`;

export function printSource(plan: LaunchPlan, prefix: string, compiled: Images): string {
  const { layer, received, family, heddle, split } = plan;
  // What a round brings: tokens come first.
  const values = argumentsOf(plan).map(({ name }) =>
    name === 'tokens' ? `round->${name}` : `(uint64_t)(uintptr_t)round->${name}`,
  );
  const point = ([name, tensor]: [string, PlacedTensor]): string => {
    const [field = name, payload] = name.split('.');
    const type = payload === undefined ? pointers[field]! : 'const void *';
    const index = payload === undefined ? '' : `[${layer.payloads.findIndex((of) => of.name === payload)}]`;
    const at = `heddle_player_address(rank->player, ${memoryOf(plan, tensor)}) + ${tensor.offset}`;
    return `  rank->received.${field}${index} = (${type})(uintptr_t)(${at});`;
  };
  const text = `
/* Written by \`heddle export ${family}\` of Heddle ${heddle}: ${prefix}.h says how to call it. Link it with -ldl before glibc 2.34. */
${player('player.c').replace('#include "player.h"\n', () => `#include "${prefix}.h"\n\n${player('player.h')}`)}
/* ---- The export. */

${arrayOf(packShape(plan, compiled))}

struct heddle_rank {
  heddle_player *player;
  struct heddle_slots received;
};

const char *heddle_create(heddle_rank **made, const struct heddle_host *host) {
  *made = NULL;
  heddle_rank *rank = (heddle_rank *)calloc(1, sizeof *rank);
  if (rank == NULL) return heddle_say("there is no memory for a rank");
  const char *wrong = heddle_player_create(&rank->player, heddle_words, sizeof heddle_words, host, NULL);
  if (wrong != NULL) {
    free(rank);
    return wrong;
  }
${Object.entries(received).map(point).join('\n')}
  *made = rank;
  return NULL;
}

const struct heddle_slots *heddle_received(const heddle_rank *rank) { return &rank->received; }

static const char *heddle_stages(heddle_rank *rank, uint32_t first, uint32_t last, const struct heddle_round *round,
                                 void *stream) {
  const uint64_t values[] = {${values.join(', ')}};
  return heddle_player_run(rank->player, first, last, values, stream);
}
${call('dispatch', 'dispatchSend', 'dispatchRecv')}
${call('combine', 'combineSend', 'combineRecv')}
${plan.weights === undefined ? '' : call('experts', 'plan', 'experts')}
${
  split
    ? [
        call('dispatch_send', 'dispatchSend', 'dispatchSend'),
        call('dispatch_recv', 'dispatchRecv', 'dispatchRecv'),
        call('combine_send', 'combineSend', 'combineSend'),
        call('combine_recv', 'combineRecv', 'combineRecv'),
      ].join('\n')
    : ''
}

const char *heddle_failure(heddle_rank *rank, struct heddle_lost *lost) { return heddle_player_failure(rank->player, lost); }

${plan.masked === undefined ? '' : mask}void heddle_destroy(heddle_rank *rank) {
  if (rank != NULL) heddle_player_destroy(rank->player);
  free(rank);
}
`;
  return renamed(text.trimStart(), prefix);
}
