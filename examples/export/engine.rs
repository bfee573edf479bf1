//! An engine in Rust with Heddle's kernels: a thread a GPU. One file of C is linked with it, and no other dependency.
//!
//!   heddle export one-sided --shape ranks=2,tokens=128,hidden=1024,experts=16,topk=4 --arch sm_90a --out decode
//!   gcc -O2 -c decode/heddle.c -o heddle.o
//!   rustc -O examples/export/engine.rs -C link-arg=heddle.o -l cuda
//!   ./engine
use std::ffi::{c_char, c_int, c_void, CStr};
use std::ptr::{null, null_mut};
use std::sync::{Barrier, Mutex};

// What decode/heddle.h says of this plan; bindgen writes the same.
const RANKS: usize = 2;
const TOP_K: usize = 4;
const TOKENS: usize = 128;
const ROW_BYTES: usize = 2 * 1024;

#[repr(C)]
struct Host {
    rank: u32,
    device: c_int,
    limit_us: u32,
    all_gather: extern "C" fn(*mut c_void, *const c_void, *mut c_void, usize) -> c_int,
    context: *mut c_void,
}
#[repr(C)]
struct Round {
    topk_ids: *const i32,
    topk_weights: *const f32,
    rows: [*const c_void; 1],
    out: *mut c_void,
    tokens: u32,
}
#[repr(C)]
struct Received {
    experts: *const i32,
    weights: *const f32,
    counts: *const u32,
    payloads: [*const c_void; 1],
    output: *mut c_void,
}
type Rank = c_void;
type Words = *const c_char;

extern "C" {
    fn heddle_create(made: *mut *mut Rank, host: *const Host) -> Words;
    fn heddle_received(rank: *const Rank) -> *const Received;
    fn heddle_dispatch(rank: *mut Rank, round: *const Round, stream: *mut c_void) -> Words;
    fn heddle_combine(rank: *mut Rank, round: *const Round, stream: *mut c_void) -> Words;
    fn heddle_failure(rank: *mut Rank, lost: *mut c_void) -> Words;
    fn heddle_destroy(rank: *mut Rank);

    fn cuInit(flags: u32) -> c_int;
    fn cuDevicePrimaryCtxRetain(context: *mut *mut c_void, device: c_int) -> c_int;
    fn cuCtxSetCurrent(context: *mut c_void) -> c_int;
    fn cuStreamCreate(stream: *mut *mut c_void, flags: u32) -> c_int;
    fn cuStreamSynchronize(stream: *mut c_void) -> c_int;
    fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> c_int;
    fn cuMemcpyHtoD_v2(to: u64, from: *const c_void, bytes: usize) -> c_int;
    fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: *mut c_void) -> c_int;
}

fn require(words: Words) {
    if !words.is_null() {
        panic!("{}", unsafe { CStr::from_ptr(words) }.to_string_lossy());
    }
}
fn cuda(result: c_int) {
    assert_eq!(result, 0, "CUDA error");
}

/// Where the ranks meet: each leaves its bytes, and takes those of all.
struct Meeting {
    barrier: Barrier,
    bytes: Mutex<Vec<u8>>,
}
struct Member<'a> {
    rank: usize,
    meeting: &'a Meeting,
}

extern "C" fn all_gather(member: *mut c_void, mine: *const c_void, all: *mut c_void, bytes: usize) -> c_int {
    let Member { rank, meeting } = unsafe { &*(member as *const Member) };
    {
        let mut board = meeting.bytes.lock().unwrap();
        board.resize(RANKS * bytes, 0);
        board[rank * bytes..][..bytes].copy_from_slice(unsafe { std::slice::from_raw_parts(mine as *const u8, bytes) });
    }
    meeting.barrier.wait();
    let board = meeting.bytes.lock().unwrap().clone();
    unsafe { std::ptr::copy_nonoverlapping(board.as_ptr(), all as *mut u8, board.len()) };
    meeting.barrier.wait();
    0
}

unsafe fn on_gpu<T>(values: &[T]) -> u64 {
    let (mut address, bytes) = (0, std::mem::size_of_val(values));
    cuda(cuMemAlloc_v2(&mut address, bytes));
    cuda(cuMemcpyHtoD_v2(address, values.as_ptr() as *const c_void, bytes));
    address
}

unsafe fn run(rank: usize, meeting: &Meeting) {
    let (mut context, mut stream, mut heddle) = (null_mut(), null_mut(), null_mut());
    cuda(cuDevicePrimaryCtxRetain(&mut context, rank as c_int));
    cuda(cuCtxSetCurrent(context));
    cuda(cuStreamCreate(&mut stream, 1));
    let member = Member { rank, meeting };
    let host = Host {
        rank: rank as u32,
        device: rank as c_int,
        limit_us: 0,
        all_gather,
        context: &member as *const Member as *mut c_void,
    };
    require(heddle_create(&mut heddle, &host));

    // Token t goes to the experts t, t + 1, … of sixteen.
    let ids: Vec<i32> = (0..TOKENS * TOP_K).map(|i| ((i / TOP_K + i % TOP_K) % 16) as i32).collect();
    let round = Round {
        topk_ids: on_gpu(&ids) as *const i32,
        topk_weights: on_gpu(&vec![1f32; TOKENS * TOP_K]) as *const f32,
        rows: [on_gpu(&vec![rank as u8; TOKENS * ROW_BYTES]) as *const c_void],
        out: on_gpu(&vec![0u8; TOKENS * ROW_BYTES]) as *mut c_void,
        tokens: TOKENS as u32,
    };
    let received = &*heddle_received(heddle);
    for _ in 0..3 {
        require(heddle_dispatch(heddle, &round, stream));
        // Stands for a layer's experts: the row of each slot goes back as it came.
        let bytes = RANKS * TOKENS * ROW_BYTES;
        cuda(cuMemcpyDtoDAsync_v2(received.output as u64, received.payloads[0] as u64, bytes, stream));
        require(heddle_combine(heddle, &round, stream));
    }
    cuda(cuStreamSynchronize(stream));
    require(heddle_failure(heddle, null::<c_void>() as *mut c_void));
    // Nobody frees a window that another rank may still write.
    meeting.barrier.wait();
    heddle_destroy(heddle);
}

fn main() {
    cuda(unsafe { cuInit(0) });
    let meeting = Meeting { barrier: Barrier::new(RANKS), bytes: Mutex::new(Vec::new()) };
    std::thread::scope(|scope| {
        for rank in 0..RANKS {
            let meeting = &meeting;
            scope.spawn(move || unsafe { run(rank, meeting) });
        }
    });
    println!("3 rounds on {RANKS} GPUs");
}
