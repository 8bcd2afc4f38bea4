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

/** Anybody can have requests refused, so that what looking closer may cost is bounded. */
const MOST_A_SECOND_FOR_ONE = 5
const MOST_A_SECOND = 20
const MOST_BYTES = 256 * 1024

/** Finds out why requests are refused, after their answer and for a few a second only; the others count all the same. */
export function createRefusals({ explain, count, now = () => performance.now() }: RefusalsDeps): Refusals {
  const all = createBucket(MOST_A_SECOND, now)
  const ofSource = new Map<string, ReturnType<typeof createBucket>>()
  const mayExplain = ({ name }: Source, { body }: WebhookRequest) => {
    if (body.length > MOST_BYTES) return false
    const own = ofSource.get(name) ?? createBucket(MOST_A_SECOND_FOR_ONE, now)
    ofSource.set(name, own)
    // The source's own first: what one source has too much of must take nothing from the others.
    return own.take() && all.take()
  }

  const causeOf: RefusalsDeps['explain'] = (source, request, reason) => {
    try {
      return explain(source, request, reason)
    } catch {
      return reason
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
      if (!mayExplain(source, request)) return count(source.name, reason)
      const isFirst = waiting.push(() => count(source.name, causeOf(source, request, reason))) === 1
      if (isFirst) setImmediate(explainNext)
    },
  }
}

/** A token bucket: holds one second's worth, and fills as the time goes by. */
function createBucket(perSecond: number, now: () => number) {
  let tokens = perSecond
  let filledAt = now()
  return {
    take(): boolean {
      const at = now()
      tokens = Math.min(perSecond, tokens + ((at - filledAt) / 1_000) * perSecond)
      filledAt = at
      if (tokens < 1) return false
      tokens -= 1
      return true
    },
  }
}
