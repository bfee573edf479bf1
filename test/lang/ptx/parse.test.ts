import { describe, expect, test } from 'vitest';
import { demangled, ptx, writtenAs } from '../../../src/lang/ptx/index.js';

const head = '.version 8.6\n.target sm_90a\n.address_size 64\n';

test('what a module has', () => {
  const text = `${head}
.file 1 "/home/me/mine.cu" // and its date
.file 2 "/usr/local/cuda-13.0/include/intrinsics.hpp"
.extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);
.global .align 4 .b8 text[3] = {104, 105, 0};
.extern .shared .align 16 .b8 dynamic[];
.section .debug_str {
$L__info: .b8 95,0
}
/* two kernels,
   one of them mangled */
.visible .entry plain(.param .u64 .ptr .global .align 16 out, .param .align 4 .b8 pair[8], .param .f32 by)
.maxntid 128, 2, 1
{
  .reg .b64 %rd<3>; .reg .b32 %r<2>, %one;
  .loc 1 7 3
  ld.param.u64 %rd1, [out];
  .loc 1 9 5, function_name $L__info, inlined_at 1 12 1
  st.global.v2.u32 [%rd1+-8], {%r1, 0x1F};
  .loc 2 146 3, function_name $L__info, inlined_at 1 9 5
  membar.gl;
  ret;
}
.visible .entry _Z6reducePfi(.param .u64 a, .param .u32 n) { ret; }
`;
  const program = ptx(text, 'mine.ptx');
  expect(program.kernels).toEqual(['plain', '_Z6reducePfi']);
  const { module } = program;
  expect([module.version, module.target, module.sources.get(1)]).toEqual([
    '8.6',
    'sm_90a',
    '/home/me/mine.cu',
  ]);
  expect(module.variables.map(({ name, bytes }) => [name, bytes])).toEqual([
    ['text', 3],
    ['dynamic', null],
  ]);
  const plain = program.kernel('plain', { params: ['out', 'pair', 'by'] });
  expect(plain.params).toEqual([
    { name: 'out', offset: 0, bytes: 8, type: 'u64' },
    { name: 'pair', offset: 8, bytes: 8, type: null },
    { name: 'by', offset: 16, bytes: 4, type: 'f32' },
  ]);
  expect(plain.maxThreads).toBe(256);
  const [load, store, fence] = plain.entry.instructions;
  expect(load).toMatchObject({
    parts: ['ld', 'param', 'u64'],
    line: 20,
    source: { line: 7, inlinedAt: null },
  });
  expect(store).toMatchObject({
    source: { line: 9, inlinedAt: { line: 12 } },
    operands: [
      { kind: 'address', offset: -8 },
      { kind: 'list', elements: [{ name: '%r1' }, { value: 31n }] },
    ],
  });
  // What is inlined into something that is inlined itself; of a header of the toolkit, who called it.
  expect(fence).toMatchObject({ source: { line: 146, inlinedAt: { line: 9, inlinedAt: { line: 12 } } } });
  expect(writtenAs(module, fence!).where).toBe('mine.cu:9:5, inlined at mine.cu:12:1');
  // By the name before C++ mangled it.
  expect(program.kernel('reduce').name).toBe('_Z6reducePfi');
});

test.each(['\0', '\0\0\0\n'])('zeros end a text, as in C: %j', (end) => {
  expect(ptx(`${head}.entry k() { ret; }\n${end}`).kernels).toEqual(['k']);
});

describe('what cannot be read is refused with its line', () => {
  test.each([
    ['int main() {}', "mine.ptx:1: 'int' is nothing that a module may have"],
    ['', "it has no '.version'"],
    [
      `${head}.visible .entry k() {\n  .reg .b32 %r<2>;\n  add.u32 %r0 %r1;\n}`,
      "mine.ptx:6: ';' should stand before '%r1'",
    ],
    [`${head}.visible .entry k() {\n  @%p bra X;\n}`, "mine.ptx:5: '%p' is no register"],
    [`${head}.visible .entry k() {\n  ret;`, "a '}' is missing"],
    [`${head}\0.visible .entry k() { ret; }`, "mine.ptx:4: '\0' is nothing that a module may have"],
    ['.version 8.0\n.target sm_90\n.address_size 32\n', 'mine.ptx:4: addresses must have 64 bits'],
  ])('%j', (text, message) => {
    expect(() => ptx(text, 'mine.ptx')).toThrow(message);
  });

  test('a kernel that is not there, and names that are too few', () => {
    const program = ptx(`${head}.visible .entry k(.param .u32 n) { ret; }`);
    expect(() => program.kernel('other')).toThrow('name is "other"; it must be one of k');
    expect(() => program.kernel('k', { params: [] })).toThrow('the names of its 1 parameters');
  });
});

describe('names of C++', () => {
  const templates = '_ZN2ns1kIfLi512EEEvPT_PKS1_NS_1PEPKS5_NS5_2InIS1_EEPNS8_IfEE';
  test.each([
    [
      templates,
      'ns::k<float, 512>',
      'float*, float const*, ns::P, ns::P const*, ns::P::In<float>, ns::P::In<float>*',
    ],
    ['_Z4packILb1EL1E1EJiPf6__halfEEvDpT1_', 'pack<true, (E)1, int, float*, __half>', 'int, float*, __half'],
    ['_Z3lamIZ1gvEUliE_EvT_', 'lam<g()::{lambda(int)#1}>', 'g()::{lambda(int)#1}'],
    [
      '_Z5plainPyhPFvifEPVKi',
      'plain',
      'unsigned long long*, unsigned char, void (*)(int, float), int const volatile*',
    ],
    ['_ZN2ns36_GLOBAL__N__932ef5e0_4_k_cu_f32ba9d56hiddenEi', 'ns::(anonymous namespace)::hidden', 'int'],
    ['triton_kernel', 'triton_kernel', null],
    [`_Z1k${'P'.repeat(20_000)}i`, `_Z1k${'P'.repeat(20_000)}i`, null],
  ])('%#', (mangled, name, params) => {
    expect(demangled(mangled)).toEqual({ name, params });
  });

  test('a kernel is found by its own, and by a pattern of them', () => {
    const entries = [templates, templates.replace('512', '256'), '_Z3lamIZ1gvEUliE_EvT_'];
    const text = entries.map((name) => `.visible .entry ${name}() { ret; }`).join('\n');
    const program = ptx(`.version 8.0\n.target sm_90\n.address_size 64\n${text}`);
    expect(program.kernel('k<*, 256>').name).toBe(entries[1]);
    expect(program.kernel('ns::k<float, 512>').name).toBe(entries[0]);
    expect(program.kernel('lam').name).toBe(entries[2]);
    expect(() => program.kernel('k')).toThrow('ns::k<float, 512>(float*');
  });
});
