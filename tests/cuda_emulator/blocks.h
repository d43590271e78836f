// Runs the blocks of a kernel one after the other. A warp runs as far as it can before another one starts, from
// the first in even blocks and from the last in odd ones, and so do the lanes of a warp: where a barrier is
// missing, some thread is too early or too late.
static void enter() {
  kernel();
  threads_of_block[current_thread].state = DONE;
}
static char stacks[MOST_THREADS][1 << 16];

// Carries out what the threads of a warp wait for; false where not all of them wait for the same.
static bool carry_out(int first, int end) {
  int waiting = 0, operation = -1;
  for (int t = first; t < end; ++t) {
    if (threads_of_block[t].state != WARP) continue;
    if (waiting++ && threads_of_block[t].operation != operation) return false;
    operation = threads_of_block[t].operation;
  }
  if (operation != EXCHANGE && waiting != LANES) return false;
  switch (operation) {
    case EXCHANGE: exchange_in_warp(first, end); break;
    case MATRIX_PRODUCT: product_of_warp(first); break;
    case MATRIX_LOAD: load_of_warp(first); break;
  }
  for (int t = first; t < end; ++t)
    if (threads_of_block[t].state == WARP) threads_of_block[t].state = READY;
  return true;
}
// Until all of its threads wait for the block or have ended.
static void run_warp(int first, int end, bool backwards) {
  for (;;) {
    bool wait = false;
    for (int n = 0; n < end - first; ++n) {
      current_thread = backwards ? end - 1 - n : first + n;
      Thread& thread = threads_of_block[current_thread];
      if (thread.state == READY) swapcontext(&scheduler_context, &thread.context);
      wait |= thread.state == WARP;
    }
    count_conflicts();
    if (failure != FINE || !wait) return;
    if (!carry_out(first, end)) failure = WARP_DIVERGED;
    if (failure != FINE) return;
  }
}
static void start_threads() {
  forget_shared_memory();
  for (int t = 0; t < count_of_threads; ++t) {
    Thread& thread = threads_of_block[t];
    getcontext(&thread.context);
    thread.context.uc_stack.ss_sp = stacks[t];
    thread.context.uc_stack.ss_size = sizeof(stacks[t]);
    thread.context.uc_link = &scheduler_context;
    makecontext(&thread.context, enter, 0);
    thread.state = READY;
    copies_of[t].count = copies_of[t].groups = 0;
    turns_of[t] = 0;
  }
}
static int run_block(bool backwards) {
  start_threads();
  const int warps = (count_of_threads + LANES - 1) / LANES;
  for (;;) {
    for (int n = 0; n < warps; ++n) {
      const int first = (backwards ? warps - 1 - n : n) * LANES;
      run_warp(first, first + LANES < count_of_threads ? first + LANES : count_of_threads, backwards);
      if (failure != FINE) return failure;
    }
    int ended = 0;
    for (int t = 0; t < count_of_threads; ++t) ended += threads_of_block[t].state == DONE;
    if (ended == count_of_threads) return FINE;
    if (ended) return BARRIER_NOT_REACHED;
    for (int t = 0; t < count_of_threads; ++t) threads_of_block[t].state = READY;
  }
}
// What a thread reads or writes outside of memory. Those who start kernels have pages around tensors that nobody may use.
static void at_fault(int) { fail(OUTSIDE); }
static int run_grid(const int* blocks, const int* threads);
int run(void** given, const int* blocks, const int* threads) {
  struct sigaction own = {}, before;
  own.sa_handler = at_fault;
  own.sa_flags = SA_NODEFER;
  arguments = given;
  failure = FINE;
  sigaction(SIGSEGV, &own, &before);
  const int reason = run_grid(blocks, threads);
  sigaction(SIGSEGV, &before, nullptr);
  return reason;
}
static int run_grid(const int* blocks, const int* threads) {
  count_of_threads = threads[0] * threads[1] * threads[2];
  for (int t = 0; t < count_of_threads; ++t)
    threads_of_block[t].index = {t % threads[0], t / threads[0] % threads[1], t / threads[0] / threads[1]};
  bool backwards = false;
  for (blockIdx.z = 0; blockIdx.z < blocks[2]; ++blockIdx.z)
    for (blockIdx.y = 0; blockIdx.y < blocks[1]; ++blockIdx.y)
      for (blockIdx.x = 0; blockIdx.x < blocks[0]; ++blockIdx.x) {
        const int reason = run_block(backwards);
        if (reason != FINE) return reason;
        backwards = !backwards;
      }
  return FINE;
}
