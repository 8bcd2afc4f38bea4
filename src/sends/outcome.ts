import { type InboxiliAnswer, InboxiliConnectionError, InboxiliError } from '#inboxili'

const MAX_TEXT_LENGTH = 500
const MAX_CODE_LENGTH = 100
const MAX_MESSAGE_ID_LENGTH = 500

/** The answers that say for sure that this call sent nothing. */
const refusals: readonly number[] = [400, 401, 403, 404, 422]

/** How a call ended: with a 2xx answer, or with whatever it threw. */
export type CallEnd = { answer: InboxiliAnswer } | { thrown: unknown }

/** What one call's end proves; `error` is a short text for people. */
export type CallOutcome =
  | { kind: 'accepted'; messageId: string | null }
  | { kind: 'refused'; httpStatus: number; code: string; message: string; error: string }
  | { kind: 'rate_limited'; retryAfterSeconds?: number; code: string; message: string; error: string }
  | { kind: 'not_sent'; code: string; error: string }
  | { kind: 'unknown'; reason: UnknownReason; httpStatus?: number; messageId?: string; error: string }

type UnknownReason = 'http_status' | 'unreadable_answer' | 'unknown_status' | 'timeout' | 'connection_lost' | 'unexpected_error'

/** Says what the end of one call proves; everything that proves nothing is `unknown`. */
export function outcomeOf(end: CallEnd, now: Date): CallOutcome {
  if ('answer' in end) return outcomeOfAnswer(end.answer)
  if (end.thrown instanceof InboxiliError) return outcomeOfRefusal(end.thrown, now)
  if (end.thrown instanceof InboxiliConnectionError) return outcomeOfSilence(end.thrown)
  const name = end.thrown instanceof Error ? end.thrown.name : typeof end.thrown
  return { kind: 'unknown', reason: 'unexpected_error', error: clean(`unexpected ${name} in the call`) }
}

function outcomeOfAnswer(answer: InboxiliAnswer): CallOutcome {
  const messageId = usableId(answer.message_id)
  if (answer.status === 'sent') return { kind: 'accepted', messageId }
  const error = clean(`unknown status "${answer.status}" in a 2xx answer`)
  return { kind: 'unknown', reason: 'unknown_status', ...(messageId !== null && { messageId }), error }
}

function outcomeOfRefusal({ status, code: rawCode, message: rawMessage, retryAfter }: InboxiliError, now: Date): CallOutcome {
  const code = clean(rawCode, MAX_CODE_LENGTH)
  const message = clean(rawMessage)
  const error = clean(message === '' ? `${status} ${code}` : `${status} ${code}: ${message}`)
  if (refusals.includes(status)) return { kind: 'refused', httpStatus: status, code, message, error }
  if (status === 429) {
    const seconds = retryAfterSeconds(retryAfter, now)
    return { kind: 'rate_limited', ...(seconds !== undefined && { retryAfterSeconds: seconds }), code, message, error }
  }
  if (status >= 200 && status < 300) {
    return { kind: 'unknown', reason: 'unreadable_answer', httpStatus: status, error: `${status} with an unreadable answer` }
  }
  return { kind: 'unknown', reason: 'http_status', httpStatus: status, error: `${status} after the request` }
}

function outcomeOfSilence({ requestStarted, code, message }: InboxiliConnectionError): CallOutcome {
  if (requestStarted === false) return { kind: 'not_sent', code: clean(code, MAX_CODE_LENGTH), error: clean(message) }
  return { kind: 'unknown', reason: code === 'timeout' ? 'timeout' : 'connection_lost', error: clean(message) }
}

/** An ID that a row and its unique index can hold; the email counts as accepted without one too. */
function usableId(id: string | null): string | null {
  return id !== null && id !== '' && id.length <= MAX_MESSAGE_ID_LENGTH && id === clean(id) ? id : null
}

/** As it is written today, or in the older form of RFC 850. */
const HTTP_DATE = /^([A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4}|[A-Z][a-z]{2,5}day, [0-3]\d-[A-Z][a-z]{2}-\d\d) \d\d:\d\d:\d\d GMT$/

/** However long: whoever waits has an upper limit. */
function retryAfterSeconds(text: string | undefined, now: Date): number | undefined {
  if (text === undefined) return undefined
  if (/^\d+$/.test(text)) return Number(text)
  if (!HTTP_DATE.test(text)) return undefined
  const seconds = Math.ceil((Date.parse(text) - now.getTime()) / 1000)
  return Number.isNaN(seconds) ? undefined : Math.max(0, seconds)
}

/** Text that PostgreSQL takes and a line of a table holds: no control characters, no half characters, not long. */
function clean(text: string, maxLength = MAX_TEXT_LENGTH): string {
  return text
    .slice(0, maxLength)
    .toWellFormed()
    .replace(/\p{Cc}/gu, ' ')
}
