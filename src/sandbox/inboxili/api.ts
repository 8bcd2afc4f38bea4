import { createHash, randomUUID, timingSafeEqual } from 'node:crypto'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { z } from 'zod'
import { createArmed } from './armed.ts'
import { type Answer, type Ending, endingOf, errorAnswer, type faultSchema } from './faults.ts'
import type { Reporter } from './reports.ts'

const MAX_BODY_BYTES = 1024 * 1024
const WINDOW_MS = 60_000
const SEND_PATH = '/api/v1/transactional/send'

const text = z.string().min(1)
const address = z.string().regex(/^[^\s@]+@[^\s@]+$/, 'not an email address')
const messageSchema = z
  .strictObject({
    to: address,
    from_email: address,
    from_name: text.optional(),
    subject: text.optional(),
    html_body: text.optional(),
    text_body: text.optional(),
    template_id: text.optional(),
    template_data: z.record(z.string(), z.unknown()).optional(),
  })
  .refine((message) => message.html_body ?? message.template_id, 'html_body or template_id is required')
  .refine((message) => message.template_id ?? message.subject, 'subject is required without a template')

/** One request to the API, from its arrival on. `accepted` means that its email went out, whatever the answer said. */
export interface Call {
  atMs: number
  method: string
  path: string
  /** The message, once it was found to be valid. */
  message: z.output<typeof messageSchema> | null
  to: string | null
  accepted: boolean
  messageId: string | null
  /** The armed behaviour that this request met. */
  fault: z.output<typeof faultSchema>['kind'] | null
  /** The status answered; null while there is none, and for ever when the connection went first. */
  answer: number | null
  endedAtMs: number | null
}

/** The API's published behaviour, and the armed faults that break it. */
export interface Api {
  ledger: Call[]
  faults: ReturnType<typeof createArmed<z.output<typeof faultSchema>>>
  handle(req: IncomingMessage, res: ServerResponse): Promise<void>
  /** Lets the held answers go; says how many there were. */
  releaseHeld(): number
}

/** Makes the API; every email it accepts goes to the reporter. */
export function createApi(options: { apiKey: string; sendsPerMinute: number; now: () => number; reporter: Reporter }): Api {
  const { now, reporter } = options
  const ledger: Call[] = []
  const faults: Api['faults'] = createArmed()
  const held = new Set<() => void>()
  let admittedAtMs: number[] = []

  /** The answer over the limit, or nothing and the request is counted. */
  function limit(): Answer | undefined {
    const current = now()
    admittedAtMs = admittedAtMs.filter((at) => at > current - WINDOW_MS)
    const [oldest] = admittedAtMs
    if (oldest !== undefined && admittedAtMs.length >= options.sendsPerMinute) {
      const seconds = Math.max(1, Math.ceil((oldest + WINDOW_MS - current) / 1000))
      return errorAnswer(429, 'rate_limited', `over ${options.sendsPerMinute} requests a minute`, {
        'retry-after': String(seconds),
      })
    }
    admittedAtMs.push(current)
    return undefined
  }

  async function decide(req: IncomingMessage, call: Call): Promise<Ending> {
    const refuse = (answer: Answer) => ({ accepted: false, answer })
    // Read in any case: an answer to a half-read request can be lost in the reset that follows it.
    const json = await readJson(req)
    if (call.path !== SEND_PATH) return refuse(errorAnswer(404, 'not_found', 'no such path'))
    if (req.method !== 'POST') return refuse(errorAnswer(405, 'method_not_allowed', 'use POST', { allow: 'POST' }))
    if (!isSame(req.headers.authorization ?? '', `Bearer ${options.apiKey}`)) {
      return refuse(errorAnswer(401, 'unauthorized', 'missing or invalid API key'))
    }
    const tooMany = limit()
    if (tooMany !== undefined) return refuse(tooMany)

    if (!json.ok) return refuse(errorAnswer(422, 'validation_error', json.reason))
    const message = messageSchema.safeParse(json.value)
    if (!message.success) return refuse(errorAnswer(422, 'validation_error', z.prettifyError(message.error)))

    call.message = message.data
    call.to = message.data.to
    const fault = faults.take(message.data.to)
    call.fault = fault?.kind ?? null
    const id = (fault && 'messageId' in fault ? fault.messageId : undefined) ?? randomUUID()
    const ending = endingOf(fault ?? { kind: 'ok' }, id)
    if (ending.accepted) Object.assign(call, { accepted: true, messageId: id })
    return ending
  }

  function hold(res: ServerResponse, ms: number | undefined): Promise<void> {
    return new Promise((resolve) => {
      const timer = ms === undefined ? undefined : setTimeout(release, ms)
      function release() {
        clearTimeout(timer)
        held.delete(release)
        resolve()
      }
      held.add(release)
      if (res.closed) release()
      else res.once('close', release)
    })
  }

  return {
    ledger,
    faults,
    async handle(req, res) {
      const path = new URL(req.url ?? '/', 'http://sandbox').pathname
      const call: Call = {
        atMs: now(),
        method: req.method ?? '',
        path,
        message: null,
        to: null,
        accepted: false,
        messageId: null,
        fault: null,
        answer: null,
        endedAtMs: null,
      }
      ledger.push(call)
      res.once('close', () => {
        call.endedAtMs = now()
      })

      const ending = await decide(req, call)
      if (call.accepted && call.messageId !== null && call.to !== null) {
        await reporter.accepted({ messageId: call.messageId, to: call.to })
      }
      if (ending.hold !== undefined) await hold(res, ending.hold === 'until_released' ? undefined : ending.hold)
      if (ending.answer === 'cut' || res.closed) {
        req.socket.destroy()
        return
      }
      call.answer = ending.answer.status
      writeAnswer(res, ending.answer)
    },
    releaseHeld() {
      const { size } = held
      for (const release of held) release()
      return size
    },
  }
}

/** Writes one JSON answer. */
export function writeAnswer(res: ServerResponse, { status, headers, body }: Answer): void {
  res.writeHead(status, { 'content-type': 'application/json', ...headers }).end(body)
}

/** The JSON of a request, or why there is none. */
export async function readJson(req: IncomingMessage): Promise<{ ok: true; value: unknown } | { ok: false; reason: string }> {
  const chunks: Buffer[] = []
  let bytes = 0
  for await (const chunk of req as AsyncIterable<Buffer>) {
    bytes += chunk.length
    if (bytes <= MAX_BODY_BYTES) chunks.push(chunk)
  }
  if (bytes > MAX_BODY_BYTES) return { ok: false, reason: 'the body is over 1 MiB' }
  try {
    return { ok: true, value: JSON.parse(Buffer.concat(chunks).toString('utf8')) }
  } catch {
    return { ok: false, reason: 'the body is not JSON' }
  }
}

function isSame(given: string, expected: string): boolean {
  const hash = (value: string) => createHash('sha256').update(value).digest()
  return timingSafeEqual(hash(given), hash(expected))
}
