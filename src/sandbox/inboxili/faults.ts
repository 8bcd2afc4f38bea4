import { z } from 'zod'

const messageId = z.string().min(1).optional()

/** How one valid API call is to end. `messageId` replaces the random one; `accepted` says whether an email goes out. */
export const faultSchema = z.discriminatedUnion('kind', [
  z.strictObject({ kind: z.literal('ok'), messageId }),
  z.strictObject({ kind: z.literal('null_id'), messageId }),
  z.strictObject({ kind: z.literal('hold'), accepted: z.boolean().default(true), ms: z.int().min(0).optional(), messageId }),
  z.strictObject({ kind: z.literal('cut_after_accept'), messageId }),
  z.strictObject({ kind: z.literal('cut_before_accept') }),
  z.strictObject({
    kind: z.literal('status'),
    status: z.int().min(200).max(599),
    code: z.string().default('sandbox'),
    message: z.string().default('armed in the sandbox'),
    accepted: z.boolean().optional(),
    body: z.string().optional(),
    headers: z.record(z.string(), z.string()).default({}),
    messageId,
  }),
  z.strictObject({ kind: z.literal('rate_limited'), retryAfter: z.union([z.int().min(0), z.string()]).optional() }),
  z.strictObject({ kind: z.literal('unreadable'), body: z.string().default('{"status":"sent","message_'), messageId }),
  z.strictObject({ kind: z.literal('odd_status'), status: z.string().default('weird'), messageId }),
])
export type Fault = z.input<typeof faultSchema>

/** What the API does with one call: accept the email or not, then wait, then answer or cut the connection. */
export interface Ending {
  accepted: boolean
  /** Milliseconds to wait before the answer; `until_released` has no end of its own. */
  hold?: number | 'until_released'
  answer: Answer | 'cut'
}

export interface Answer {
  status: number
  headers?: Record<string, string>
  body: string
}

/** The answer that the API gives to a call it refuses. */
export function errorAnswer(status: number, code: string, message: string, headers: Record<string, string> = {}): Answer {
  return { status, headers, body: JSON.stringify({ error: { code, message } }) }
}

/** What a fault does with a call whose email, if it is accepted, has this ID. */
export function endingOf(fault: z.output<typeof faultSchema>, id: string): Ending {
  switch (fault.kind) {
    case 'ok':
      return { accepted: true, answer: sent('sent', id) }
    case 'null_id':
      return { accepted: true, answer: sent('sent', null) }
    case 'hold': {
      const answer = fault.accepted ? sent('sent', id) : errorAnswer(503, 'unavailable', 'armed in the sandbox')
      return { accepted: fault.accepted, hold: fault.ms ?? 'until_released', answer }
    }
    case 'cut_after_accept':
      return { accepted: true, answer: 'cut' }
    case 'cut_before_accept':
      return { accepted: false, answer: 'cut' }
    case 'status': {
      const { status, code, message, headers, body } = fault
      const isSuccess = status < 300
      const plain = isSuccess ? sent('sent', id) : errorAnswer(status, code, message)
      return { accepted: fault.accepted ?? isSuccess, answer: { status, headers, body: body ?? plain.body } }
    }
    case 'rate_limited': {
      const headers = fault.retryAfter === undefined ? {} : { 'retry-after': String(fault.retryAfter) }
      return { accepted: false, answer: errorAnswer(429, 'rate_limited', 'too many requests', headers) }
    }
    case 'unreadable':
      return { accepted: true, answer: { status: 200, body: fault.body } }
    case 'odd_status':
      return { accepted: true, answer: sent(fault.status, id) }
  }
}

function sent(status: string, messageId: string | null): Answer {
  return { status: 200, body: JSON.stringify({ status, message_id: messageId }) }
}
