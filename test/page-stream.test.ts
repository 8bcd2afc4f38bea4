import { expect, test } from 'vitest'
import { pageWaitMs } from '../src/ops/page/stream.ts'

test.each([
  [1, 0.5, 250],
  [20, 0.5, 5_000],
  [20, 0, 2_500],
  [20, 1, 7_500],
])(
  'I19 with %i open pages, by a chance of %d, a page waits %i ms to be told again: together they get four a second',
  (pages, chance, ms) => {
    expect(pageWaitMs(pages, chance)).toBe(ms)
  },
)
