/**
 * Lets so much be done in a turn of the event loop, and the rest in the next ones: Node accepts one new connection in a turn, and looks at
 * its timers once.
 */
export interface Turns {
  /** Asks for a turn; undefined where it is one's turn at once. */
  take(): Wait | undefined
}

interface Wait {
  /** Resolves with true when it is one's turn, with false when it was dropped. */
  turn: Promise<boolean>
  /** Doesn't want it any more, and holds nothing from now on. */
  drop(): void
}

export function createTurns(most: number): Turns {
  let left = most
  // In the order in which they came.
  const waiting = new Set<(isTurn: boolean) => void>()
  let isPlanned = false

  const begin = () => {
    isPlanned = false
    left = most
    for (const one of waiting) {
      if (left === 0) break
      left -= 1
      waiting.delete(one)
      one(true)
    }
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
      const { promise, resolve } = Promise.withResolvers<boolean>()
      waiting.add(resolve)
      return {
        turn: promise,
        drop() {
          if (waiting.delete(resolve)) resolve(false)
        },
      }
    },
  }
}
