/** From here on V8 lets what is new come to 64 MiB before it is cleaned. */
const LARGE_HEAP = 4 * 2 ** 30

/**
 * How V8 is to run the heap of a process that serves, as options of Node that may be set while it runs. `given` are those that it was
 * started with: they take precedence. `limit` is how many bytes the heap may come to. docs/adr/0009 has the reasons.
 */
export function heapOptions(given: readonly string[], limit: number): string[] {
  const names = given.join(' ').replaceAll('_', '-')
  const isFree = (name: string) => !names.includes(name)
  const options: string[] = []
  // After some minutes without work V8 lets the heap grow slowly, and goes on so under load: it cleans all of it several times a second.
  if (isFree('heap-growing-percent')) options.push('--heap-growing-percent=100')
  // What V8 guesses to live long, it allocates among what is old. Guessed wrong about requests, none is freed until the whole heap is cleaned.
  if (isFree('allocation-site-pretenuring')) options.push('--no-allocation-site-pretenuring')
  // After a quiet time the room for what is new is small, and grows by what is left at each cleaning of it, which is little here.
  if (isFree('semi-space')) options.push('--semi-space-growth-factor=4')
  // What is new is cleaned at some 16 MiB, which is as fast and takes less memory. A share of a small room would be dear.
  if (limit >= LARGE_HEAP && isFree('minor-gc-task') && isFree('semi-space')) options.push('--minor-gc-task-trigger=25')
  return options
}
