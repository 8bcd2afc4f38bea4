import type { Source } from '../config.ts'
import type { WebhookRequest } from '../providers/provider.ts'
import type { Reason } from '../providers/signature.ts'

export interface RefusalsDeps {
  /** Looks closer at a refused request and answers the cause, a word of ours; it may cost time. */
  explain(source: Source, request: WebhookRequest, reason: Reason): string
  /** Counts one refusal under its cause. */
  count(source: string, cause: string): void
  /** Milliseconds of a clock that never goes back. */
  now?: () => number
}

export interface Refusals {
  /** Takes a request whose 401 is out. It is counted under its cause, or under the verifier's reason where nobody looks closer. */
  refused(source: Source, request: WebhookRequest, reason: Reason): void
}

/** Anybody can have requests refused, so that what looking closer may cost is bounded: milliseconds of each second. */
const MOST_MS_A_SECOND = 100
const MOST_MS_A_SECOND_FOR_ONE = 50
const MOST_BYTES = 32 * 1024
/** They keep their bodies, and what waits longer says less of now. */
const MOST_WAITING = 8

/** Finds out why requests are refused, after their answer and for a tenth of the time only; the others count all the same. */
export function createRefusals({ explain, count, now = () => performance.now() }: RefusalsDeps): Refusals {
  const all = createBucket(MOST_MS_A_SECOND, now)
  const ofSource = new Map<string, ReturnType<typeof createBucket>>()
  const bucketsOf = ({ name }: Source) => {
    const own = ofSource.get(name) ?? createBucket(MOST_MS_A_SECOND_FOR_ONE, now)
    ofSource.set(name, own)
    return [own, all]
  }
  const mayExplain = (source: Source) => bucketsOf(source).every((bucket) => !bucket.isEmpty())

  const causeOf: RefusalsDeps['explain'] = (source, request, reason) => {
    // Those that waited before it may have used up what there was.
    if (!mayExplain(source)) return reason
    const started = now()
    try {
      return explain(source, request, reason)
    } catch {
      return reason
    } finally {
      const took = now() - started
      for (const bucket of bucketsOf(source)) bucket.take(took)
    }
  }
  const waiting: (() => void)[] = []
  // One in each turn of the loop, so that what has arrived meanwhile gets its answer in between.
  const explainNext = () => {
    waiting.shift()?.()
    if (waiting.length > 0) setImmediate(explainNext)
  }
  return {
    refused(source, request, reason) {
      const isTooMuch = request.body.length > MOST_BYTES || waiting.length >= MOST_WAITING
      if (isTooMuch || !mayExplain(source)) return count(source.name, reason)
      const isFirst = waiting.push(() => count(source.name, causeOf(source, request, reason))) === 1
      if (isFirst) setImmediate(explainNext)
    },
  }
}

/** A bucket of milliseconds: holds one second's worth, and fills as the time goes by. What was taken too much is paid back first. */
function createBucket(perSecond: number, now: () => number) {
  let left = perSecond
  let filledAt = now()
  return {
    isEmpty(): boolean {
      const at = now()
      left = Math.min(perSecond, left + ((at - filledAt) / 1_000) * perSecond)
      filledAt = at
      return left <= 0
    },
    take(ms: number): void {
      left -= ms
    },
  }
}
