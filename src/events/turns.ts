/**
 * Lets so much be done in a turn of the event loop, and the rest in the next ones: Node accepts one new connection in a turn, and looks at
 * its timers once. Resolves when it is one's turn, at once where it is; undefined instead of a promise then.
 */
export function createTurns(most: number): () => Promise<void> | undefined {
  let left = most
  let waiting: (() => void)[] = []
  let isPlanned = false

  const begin = () => {
    isPlanned = false
    left = Math.max(0, most - waiting.length)
    const now = waiting.slice(0, most)
    waiting = waiting.slice(most)
    for (const go of now) go()
    if (left < most) plan()
  }
  const plan = () => {
    if (isPlanned) return
    isPlanned = true
    setImmediate(begin)
  }
  return () => {
    plan()
    if (left > 0) {
      left -= 1
      return undefined
    }
    return new Promise((go) => waiting.push(go))
  }
}
