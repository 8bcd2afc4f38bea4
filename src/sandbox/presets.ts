import type { Fault } from './inboxili/faults.ts'
import type { Report } from './inboxili/reports.ts'

/** How the email sandbox can go wrong, by names that people type and click; what it does with the next call. */
export const faultPresets: readonly { name: string; fault: Fault; text: string }[] = [
  { name: 'timeout', fault: { kind: 'hold', accepted: true }, text: 'accepts the email, then never answers' },
  { name: '5xx', fault: { kind: 'status', status: 502, accepted: true }, text: 'accepts the email, then answers 502' },
  { name: 'reset', fault: { kind: 'cut_after_accept' }, text: 'accepts the email, then cuts the connection' },
  { name: 'reset-before', fault: { kind: 'cut_before_accept' }, text: 'cuts the connection, and accepts nothing' },
  { name: '429', fault: { kind: 'rate_limited', retryAfter: 10 }, text: 'answers 429: come back in 10 s' },
  {
    name: '422',
    fault: { kind: 'status', status: 422, code: 'sender_not_verified', message: 'the sender is not verified' },
    text: 'refuses it: the sender is not verified',
  },
  {
    name: '401',
    fault: { kind: 'status', status: 401, code: 'unauthorized', message: 'unknown key' },
    text: 'refuses the API key',
  },
  { name: 'null-id', fault: { kind: 'null_id' }, text: 'accepts the email, and names no message ID' },
  { name: 'unreadable', fault: { kind: 'unreadable' }, text: 'accepts the email, then answers 200 with half a body' },
]

/** What the report on the next accepted email does. */
export const reportPresets: readonly { name: string; report: Report; text: string }[] = [
  { name: 'late', report: { kind: 'late', ms: 30_000 }, text: 'comes 30 s late' },
  { name: 'twice', report: { kind: 'duplicate', copies: 2 }, text: 'comes twice' },
  { name: 'early', report: { kind: 'before_answer' }, text: 'comes before the answer to the call' },
  { name: 'bounce', report: { kind: 'bounced' }, text: 'says that it bounced' },
  {
    name: 'complaint',
    report: { kind: 'sequence', events: [{ event: 'delivered' }, { event: 'complained' }] },
    text: 'says delivered, then that the recipient complained',
  },
  { name: 'held', report: { kind: 'hold' }, text: 'waits until it is let go' },
  { name: 'never', report: { kind: 'never' }, text: 'never comes' },
  { name: 'forged', report: { kind: 'forged' }, text: 'comes with a wrong signature' },
]
