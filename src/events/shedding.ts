/** Holds back the answers to requests that find no place, to let them out a few at a time. */
export interface Shedding {
  /** Counts a refusal of a source; resolves, within a moment, when its answer may go out. */
  refused(source: string): Promise<void>
}

/** An answer brings the next request of its connection. A moment's wait costs the sender nothing and leaves the time to the others. */
const ANSWERED_EVERY_MS = 25
/** Not all of them in one turn of the event loop either: what is refused must not take the time of what is taken. */
const ANSWERED_IN_TURN = 8
/** What is refused is counted one by one, but told of no more often than this: under overload a line for each would be the next load. */
const TOLD_EVERY_MS = 1_000

/** Gathers the refusals of an overload: answered together, and told of by how many there were of each source. */
export function createShedding(tell: (source: string, count: number) => void): Shedding {
  const waiting: (() => void)[] = []
  const untold = new Map<string, number>()

  const answerSome = () => {
    for (const answer of waiting.splice(0, ANSWERED_IN_TURN)) answer()
    if (waiting.length > 0) setImmediate(answerSome)
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
        if (waiting.push(answer) === 1) setTimeout(answerSome, ANSWERED_EVERY_MS)
      })
    },
  }
}
