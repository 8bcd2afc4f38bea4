/** Holds back the answers to requests that find no place, to let them out a few at a time. */
export interface Shedding {
  /** Counts a refusal of a source; resolves, within a moment, when its answer may go out. */
  refused(source: string): Promise<void>
}

/** An answer brings the next request of its connection. A moment's wait costs the sender nothing and leaves the time to the others. */
const ANSWERED_EVERY_MS = 25
/** What is refused is counted one by one, but told of no more often than this: under overload a line for each would be the next load. */
const TOLD_EVERY_MS = 1_000

/** Gathers the refusals of an overload: answered together, and told of by how many there were of each source. */
export function createShedding(tell: (source: string, count: number) => void): Shedding {
  let waiting: (() => void)[] = []
  const untold = new Map<string, number>()

  const answerAll = () => {
    const answers = waiting
    waiting = []
    for (const answer of answers) answer()
  }
  const tellAll = () => {
    for (const [source, count] of untold) tell(source, count)
    untold.clear()
  }
  return {
    refused(source) {
      if (untold.size === 0) setTimeout(tellAll, TOLD_EVERY_MS).unref()
      untold.set(source, (untold.get(source) ?? 0) + 1)
      return new Promise((answer) => {
        if (waiting.push(answer) === 1) setTimeout(answerAll, ANSWERED_EVERY_MS)
      })
    },
  }
}
