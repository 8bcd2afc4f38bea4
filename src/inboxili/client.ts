import { setTimeout as sleep } from 'node:timers/promises'
import { buildConnector, Client } from 'undici'
import { z } from 'zod'

const CONNECT_TIMEOUT_MS = 3000
const MAX_ANSWER_BYTES = 64 * 1024
const MAX_TEXT_LENGTH = 500
const MAX_RETRY_WAIT_MS = 60_000
const API_PATH = '/api/v1'
const SEND_PATH = '/transactional/send'

const messageSchema = z.strictObject({
  to: z.string().min(1),
  from_email: z.string().min(1),
  from_name: z.string().optional(),
  subject: z.string().optional(),
  html_body: z.string().optional(),
  text_body: z.string().optional(),
  template_id: z.string().optional(),
  template_data: z.record(z.string(), z.unknown()).optional(),
})

const answerSchema = z.object({ status: z.string(), message_id: z.string().nullable().default(null) })
const errorSchema = z.object({ error: z.object({ code: z.string(), message: z.string().default('') }) })

/** One email, in the API's own field names. */
export type InboxiliMessage = z.input<typeof messageSchema>

/** What the API answered: `sent` means accepted by the delivery provider, not delivered. */
export type InboxiliAnswer = z.output<typeof answerSchema>

export interface InboxiliOptions {
  /** The server's address, with or without the `/api/v1` of its API. */
  baseUrl?: string
  /** Milliseconds that one call may take, from connecting to the last byte of its answer. */
  timeout?: number
  /** How often a call is repeated after a 429; nothing else is ever repeated. */
  maxRetries?: number
}

/** An answer that is not a usable 2xx, or a message that the API could only refuse (422, before any call). */
export class InboxiliError extends Error {
  override readonly name = 'InboxiliError'
  readonly status: number
  readonly code: string
  /** The Retry-After header as it came. */
  readonly retryAfter?: string

  constructor(status: number, code: string, message: string, retryAfter?: string) {
    super(message)
    this.status = status
    this.code = code
    if (retryAfter !== undefined) this.retryAfter = retryAfter
  }
}

/** No whole answer came; unless `requestStarted` is false, the email may or may not have been sent. */
export class InboxiliConnectionError extends Error {
  override readonly name = 'InboxiliConnectionError'
  readonly code: string
  /** False only if no byte of the request can have left: there never was a connection to write it to. */
  readonly requestStarted: boolean

  constructor(message: string, options: { code: string; requestStarted: boolean; cause?: unknown }) {
    super(message, { cause: options.cause })
    this.code = options.code
    this.requestStarted = options.requestStarted
  }
}

/** The email API. Sends with a fresh connection each, follows no redirect, and never shows its key. */
export class Inboxili {
  readonly emails: { send(message: InboxiliMessage): Promise<InboxiliAnswer> }
  readonly #apiKey: string
  readonly #url: URL
  readonly #timeout: number
  readonly #maxRetries: number

  constructor(apiKey: string, options: InboxiliOptions = {}) {
    if (typeof apiKey !== 'string' || !/^[\x21-\x7e]+$/.test(apiKey))
      throw new TypeError('apiKey must be visible ASCII characters')
    this.#apiKey = apiKey
    const base = (options.baseUrl ?? 'https://api.inboxili.com').replace(/\/+$/, '')
    this.#url = new URL(`${base.endsWith(API_PATH) ? base : base + API_PATH}${SEND_PATH}`)
    if (!/^https?:$/.test(this.#url.protocol)) throw new TypeError('baseUrl must be http or https')
    this.#timeout = options.timeout ?? 15_000
    this.#maxRetries = options.maxRetries ?? 2
    this.emails = { send: (message) => this.#send(message) }
  }

  async #send(message: InboxiliMessage): Promise<InboxiliAnswer> {
    const valid = messageSchema.safeParse(message)
    if (!valid.success) throw new InboxiliError(422, 'validation_error', this.#clean(issueText(valid.error)))
    const body = JSON.stringify(valid.data)

    for (let repeats = 0; ; repeats++) {
      const result = await this.#call(body)
      if (!(result instanceof InboxiliError)) return result
      const waitMs = result.status === 429 && repeats < this.#maxRetries ? retryWaitMs(result.retryAfter, repeats) : undefined
      if (waitMs === undefined || waitMs > MAX_RETRY_WAIT_MS) throw result
      await sleep(waitMs)
    }
  }

  async #call(body: string): Promise<InboxiliAnswer | InboxiliError> {
    let connected = false
    const dial = buildConnector({
      timeout: Math.min(CONNECT_TIMEOUT_MS, this.#timeout),
      allowH2: false,
      autoSelectFamilyAttemptTimeout: 1000,
    })
    const client = new Client(this.#url.origin, {
      headersTimeout: 0,
      bodyTimeout: 0,
      // Request bytes can only go to a socket that this hands over; there is one, so there are no hidden second tries.
      connect: (options, callback) => {
        if (connected) return callback(new Error('the connection was lost before the request'), null)
        return dial(options, (...[error, socket]) => {
          if (error) return callback(error, null)
          connected = true
          callback(null, socket)
        })
      },
    })
    const deadline = new AbortController()
    const timer = setTimeout(() => deadline.abort(), this.#timeout)

    try {
      const response = await client.request({
        method: 'POST',
        path: this.#url.pathname,
        headers: {
          authorization: `Bearer ${this.#apiKey}`,
          'content-type': 'application/json',
          accept: 'application/json',
          'user-agent': 'inboxili-client',
        },
        body,
        reset: true,
        signal: deadline.signal,
      })
      const text = await readText(response.body)
      const retryAfter = response.headers['retry-after']
      return this.#read(response.statusCode, text, Array.isArray(retryAfter) ? retryAfter[0] : retryAfter)
    } catch (error) {
      if (deadline.signal.aborted) {
        const [phase, code] = connected ? ['answer', 'timeout'] : ['connection', 'connect_timeout']
        throw new InboxiliConnectionError(`no ${phase} in ${this.#timeout / 1000} s`, { code, requestStarted: connected })
      }
      const code = codeOf(error)
      const message = this.#clean(messages[code] ?? `${connected ? 'connection lost' : 'no connection'}: ${code}`)
      throw new InboxiliConnectionError(message, {
        code: this.#clean(code),
        requestStarted: connected,
        cause: this.#cleanCause(error),
      })
    } finally {
      clearTimeout(timer)
      await client.destroy()
    }
  }

  #read(status: number, text: string | undefined, retryAfter: string | undefined): InboxiliAnswer | InboxiliError {
    const json = text === undefined ? undefined : parseJson(text)
    const retry = retryAfter === undefined ? undefined : this.#clean(retryAfter)
    if (status >= 200 && status < 300) {
      const answer = answerSchema.safeParse(json)
      if (!answer.success)
        return new InboxiliError(status, 'unreadable_answer', `${status} with an answer that can't be read`, retry)
      return answer.data.status === 'sent' ? answer.data : { ...answer.data, status: this.#clean(answer.data.status) }
    }
    if (text === undefined) return new InboxiliError(status, 'unreadable_answer', `HTTP ${status}, longer than 64 KiB`, retry)
    const answer = errorSchema.safeParse(json)
    if (!answer.success) return new InboxiliError(status, 'http_error', `HTTP ${status}`, retry)
    return new InboxiliError(status, this.#clean(answer.data.error.code), this.#clean(answer.data.error.message), retry)
  }

  #clean(text: string): string {
    return text.replaceAll(this.#apiKey, '[redacted]').slice(0, MAX_TEXT_LENGTH).toWellFormed()
  }

  /** What undici throws may hold the bytes of an answer, and so an echoed key: keep its name, code and message only. */
  #cleanCause(error: unknown): Error {
    const cause = new Error(this.#clean(error instanceof Error ? error.message : 'not an error'))
    cause.name = error instanceof Error ? error.name : 'Error'
    return Object.assign(cause, { code: this.#clean(codeOf(error)) })
  }
}

const messages: Record<string, string> = {
  ECONNREFUSED: 'connection refused',
  ENOTFOUND: 'host name not found',
  EAI_AGAIN: 'host name lookup failed',
  UND_ERR_CONNECT_TIMEOUT: 'connect timeout',
  EHOSTUNREACH: 'host unreachable',
  ENETUNREACH: 'network unreachable',
  ECONNRESET: 'connection reset',
  UND_ERR_SOCKET: 'connection closed before the whole answer',
}

/** The code of an error, or of the first address tried when there were several. */
function codeOf(error: unknown): string {
  if (!(error instanceof Error)) return 'unknown'
  if ('code' in error && typeof error.code === 'string') return error.code
  if (error instanceof AggregateError && error.errors.length > 0) return codeOf(error.errors[0])
  return error.name
}

function issueText(error: z.ZodError): string {
  return error.issues.map((issue) => [issue.path.join('.'), issue.message].filter(Boolean).join(': ')).join('; ')
}

/** The text of an answer; undefined if it is longer than an answer can be. */
async function readText(stream: AsyncIterable<Buffer>): Promise<string | undefined> {
  const chunks: Buffer[] = []
  let bytes = 0
  for await (const chunk of stream) {
    bytes += chunk.length
    if (bytes > MAX_ANSWER_BYTES) return undefined
    chunks.push(chunk)
  }
  return Buffer.concat(chunks).toString('utf8')
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

function retryWaitMs(retryAfter: string | undefined, repeats: number): number {
  if (retryAfter !== undefined && /^\d+$/.test(retryAfter)) return Number(retryAfter) * 1000
  const date = retryAfter?.endsWith('GMT') ? Date.parse(retryAfter) : Number.NaN
  return Number.isNaN(date) ? 1000 * 2 ** repeats : Math.max(0, date - Date.now())
}
