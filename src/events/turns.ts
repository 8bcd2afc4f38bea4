/**
 * Lets so much be done in a turn of the event loop, and the rest in the next ones: Node accepts one new connection in a turn, and looks at
 * its timers once.
 */
export interface Turns {
  /** Resolves when it is one's turn; undefined where it is at once. */
  take(): Promise<void> | undefined
  /** For how many milliseconds the first has been waiting for its turn; 0 without one. */
  delayMs(): number
}

export function createTurns(most: number): Turns {
  let left = most
  let waiting: { since: number; go(): void }[] = []
  let isPlanned = false

  const begin = () => {
    isPlanned = false
    left = Math.max(0, most - waiting.length)
    const now = waiting.slice(0, most)
    waiting = waiting.slice(most)
    for (const { go } of now) go()
    if (left < most) plan()
  }
  const plan = () => {
    if (isPlanned) return
    isPlanned = true
    setImmediate(begin)
  }
  return {
    take() {
      plan()
      if (left > 0) {
        left -= 1
        return undefined
      }
      return new Promise((go) => waiting.push({ since: performance.now(), go }))
    },
    delayMs: () => (waiting[0] ? performance.now() - waiting[0].since : 0),
  }
}
