// A kernel of CUDA C++, as nvcc made it. Put the PTX of your own in its place: of CUDA, Triton, CuTe or TileLang.
//
//   there[i] = i * i;                        if (i == 0) while (*(volatile unsigned*)(there + 32) != 1);
//   __syncthreads();                         __threadfence_system();
//   if (i == 0)                              __syncthreads();
//     *(volatile unsigned*)(there + 32) = 1; out[i] = there[i];
import { field, layout, ptx } from 'heddle/lang';
import { run } from 'heddle/playground';

const Post = layout('window', { data: field('u32', 32), arrived: field('u32', 1) });

const kernels = ptx(`
.version 9.0
.target sm_90
.address_size 64

.visible .entry post(
  .param .align 8 .b8 post_param_0[16],
  .param .u64 post_param_1,
  .param .u32 post_param_2
)
{
  .reg .pred %p<5>;
  .reg .b32 %r<7>;
  .reg .b64 %rd<10>;

  ld.param.u64 %rd3, [post_param_1];
  ld.param.u32 %r2, [post_param_2];
  ld.param.u64 %rd4, [post_param_0+8];
  cvta.to.global.u64 %rd5, %rd4;
  add.s64 %rd1, %rd5, 128;
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd6, %r1, 4;
  add.s64 %rd2, %rd5, %rd6;
  setp.eq.s32 %p1, %r2, 0;
  @%p1 bra $L__BB0_4;
  setp.ne.s32 %p2, %r1, 0;
  @%p2 bra $L__BB0_3;
$L__BB0_2:
  ld.volatile.global.u32 %r3, [%rd1];
  setp.ne.s32 %p3, %r3, 1;
  @%p3 bra $L__BB0_2;
$L__BB0_3:
  membar.sys;
  bar.sync 0;
  ld.global.u32 %r4, [%rd2];
  cvta.to.global.u64 %rd7, %rd3;
  add.s64 %rd9, %rd7, %rd6;
  st.global.u32 [%rd9], %r4;
  bra.uni $L__BB0_6;
$L__BB0_4:
  mul.lo.s32 %r5, %r1, %r1;
  st.global.u32 [%rd2], %r5;
  bar.sync 0;
  setp.ne.s32 %p4, %r1, 0;
  @%p4 bra $L__BB0_6;
  mov.u32 %r6, 1;
  st.volatile.global.u32 [%rd1], %r6;
$L__BB0_6:
  ret;
}
`);
const params = ['win', 'out', 'rank'];
const post = kernels.kernel('post', { params, rankParameter: 'rank', layouts: { win: Post } });

run({ ranks: 2 }, async (host) => {
  const win = await host.window(Post);
  const out = host.buffer('out', 128);
  await host.launch(post, { threads: 32 }, { win, out });
});
