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
  // In the order in which they came. Not a set: V8 links each old table of one to the next, so that whatever was in any of them may be taken
  // for alive until the whole heap is cleaned.
  const waiting: { isDropped: boolean; answer(isTurn: boolean): void }[] = []
  let isPlanned = false

  const begin = () => {
    isPlanned = false
    left = most
    let passed = 0
    for (const { isDropped, answer } of waiting) {
      if (left === 0) break
      passed += 1
      if (isDropped) continue
      left -= 1
      answer(true)
    }
    waiting.splice(0, passed)
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
      const wait = { isDropped: false, answer: resolve }
      waiting.push(wait)
      return {
        turn: promise,
        drop() {
          wait.isDropped = true
          resolve(false)
        },
      }
    },
  }
}
