import { createHmac } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { Agent, request } from 'undici'
import { z } from 'zod'
import { type Armed, createArmed } from './armed.ts'

const POST_TIMEOUT_MS = 10_000
const RETRY_DELAYS_MS = [250, 1000, 3000, 10_000]

const event = { event: z.string().default('delivered'), type: z.string().optional(), timestamp: z.string().optional() }
const eventSchema = z.strictObject(event)
const { timestamp } = event
const delayMs = z.int().min(0).optional()

/** What Inboxili reports about one accepted email. `type` is hard or soft for bounces; `timestamp` replaces the time of the send. */
export const reportSchema = z.discriminatedUnion('kind', [
  z.strictObject({ kind: z.literal('delivered'), timestamp, delayMs }),
  z.strictObject({ kind: z.literal('bounced'), type: z.string().default('hard'), timestamp, delayMs }),
  z.strictObject({ kind: z.literal('complained'), timestamp, delayMs }),
  z.strictObject({ kind: z.literal('never') }),
  z.strictObject({ kind: z.literal('hold'), ...event }),
  z.strictObject({ kind: z.literal('duplicate'), copies: z.int().min(2).max(100).default(2), ...event, delayMs }),
  z.strictObject({ kind: z.literal('before_answer'), ...event }),
  z.strictObject({ kind: z.literal('late'), ms: z.int().min(0), ...event }),
  z.strictObject({ kind: z.literal('sequence'), events: z.array(eventSchema).min(1), delayMs }),
  z.strictObject({ kind: z.literal('custom'), payload: z.record(z.string(), z.json()), delayMs }),
  z.strictObject({ kind: z.literal('forged'), ...event, delayMs }),
])
export type Report = z.input<typeof reportSchema>
type ParsedReport = z.output<typeof reportSchema>
type ReportedEvent = { event: string; type?: string | undefined; timestamp?: string | undefined }

export interface Webhook {
  url: string
  secret: string
}

/** One report and what became of it; `answer` is the status of the last POST. */
export interface PostedReport {
  payload: Record<string, unknown>
  forged: boolean
  attempts: number
  answer: number | null
  state: 'pending' | 'accepted' | 'given_up'
}

interface AcceptedEmail {
  messageId: string
  to: string
}

/** Posts the signed delivery reports of accepted emails. */
export interface Reporter {
  armed: Armed<ParsedReport>
  posted: PostedReport[]
  /** Starts the reports of one email; resolves when the API may answer. */
  accepted(email: AcceptedEmail): Promise<void>
  /** How many reports are held. */
  readonly held: number
  deliverHeld(): Promise<number>
  /** Posts one report at once, a single time; undefined if there was no answer. */
  send(payload: Record<string, unknown>, forged: boolean): Promise<number | undefined>
  /** Resolves when nothing is scheduled or under way; held reports don't count. */
  settled(): Promise<void>
  setWebhook(webhook: Webhook | undefined): void
  close(): Promise<void>
}

/** Makes a reporter; without a webhook its reports are given up. */
export function createReporter(options: { webhook?: Webhook; delayMs: number; now: () => number }): Reporter {
  let webhook = options.webhook
  const armed = createArmed<ParsedReport>()
  const posted: PostedReport[] = []
  const held: (() => Promise<void>)[] = []
  const running = new Set<Promise<void>>()
  const agent = new Agent({ headersTimeout: POST_TIMEOUT_MS, bodyTimeout: POST_TIMEOUT_MS })
  const closing = new AbortController()

  async function attempt(report: PostedReport): Promise<void> {
    report.attempts += 1
    report.answer = null
    if (webhook === undefined) return
    const body = JSON.stringify(report.payload)
    const secret = report.forged ? `not ${webhook.secret}` : webhook.secret
    const headers = {
      'content-type': 'application/json',
      'user-agent': 'Inboxili',
      'x-inboxili-signature': createHmac('sha256', secret).update(body).digest('hex'),
    }
    try {
      const answer = await request(webhook.url, { method: 'POST', headers, body, dispatcher: agent, signal: closing.signal })
      report.answer = answer.statusCode
      await answer.body.dump()
    } catch {
      // No answer: the caller's retries are for that.
    }
    if (report.answer !== null && report.answer >= 200 && report.answer < 300) report.state = 'accepted'
  }

  function note(payload: Record<string, unknown>, forged: boolean): PostedReport {
    const report: PostedReport = { payload, forged, attempts: 0, answer: null, state: 'pending' }
    posted.push(report)
    return report
  }

  async function post(payload: Record<string, unknown>, forged = false): Promise<void> {
    const report = note(payload, forged)
    await attempt(report)
    for (const delay of webhook === undefined || forged ? [] : RETRY_DELAYS_MS) {
      if (report.state === 'accepted' || closing.signal.aborted) break
      await pause(delay)
      if (!closing.signal.aborted) await attempt(report)
    }
    if (report.state === 'pending') report.state = 'given_up'
  }

  function run(task: () => Promise<void>): Promise<void> {
    const promise = task().finally(() => running.delete(promise))
    running.add(promise)
    return promise
  }

  /** Waits, or ends at once when the sandbox closes. */
  const pause = (ms: number) => sleep(ms, undefined, { signal: closing.signal }).catch(() => undefined)

  function later(ms: number, task: () => Promise<unknown>): void {
    void run(async () => {
      await pause(ms)
      if (!closing.signal.aborted) await task()
    })
  }

  return {
    armed,
    posted,
    async accepted({ messageId, to }) {
      const acceptedAt = new Date(options.now()).toISOString()
      const payloadOf = ({ event, type, timestamp = acceptedAt }: ReportedEvent) => {
        return { event, message_id: messageId, to, timestamp, ...(type !== undefined && { type }) }
      }
      const plan = armed.take(to) ?? { kind: 'delivered' as const }
      const delay = ('delayMs' in plan ? plan.delayMs : undefined) ?? options.delayMs
      switch (plan.kind) {
        case 'never':
          return
        case 'delivered':
        case 'complained':
        case 'bounced':
          return later(delay, () => post(payloadOf({ ...plan, event: plan.kind })))
        case 'hold':
          held.push(() => post(payloadOf(plan)))
          return
        case 'duplicate':
          return later(delay, () => Promise.all(Array.from({ length: plan.copies }, () => post(payloadOf(plan)))))
        case 'before_answer':
          return run(() => post(payloadOf(plan)))
        case 'late':
          return later(plan.ms, () => post(payloadOf(plan)))
        case 'sequence':
          return later(delay, async () => {
            for (const one of plan.events) await post(payloadOf(one))
          })
        case 'custom':
          return later(delay, () => post(fill(plan.payload, { $message_id: messageId, $to: to, $timestamp: acceptedAt })))
        case 'forged':
          return later(delay, () => post(payloadOf(plan), true))
      }
    },
    get held() {
      return held.length
    },
    async deliverHeld() {
      const due = held.splice(0)
      await Promise.all(due.map(run))
      return due.length
    },
    async send(payload, forged) {
      const report = note(payload, forged)
      await run(() => attempt(report))
      if (report.state === 'pending') report.state = 'given_up'
      return report.answer ?? undefined
    },
    async settled() {
      while (running.size > 0) await Promise.allSettled(running)
    },
    setWebhook(value) {
      webhook = value
    },
    async close() {
      held.length = 0
      closing.abort()
      await Promise.allSettled(running)
      await agent.destroy()
    },
  }
}

/** A custom payload, its placeholders replaced by what is known of the email. */
function fill(payload: Record<string, unknown>, values: Record<string, string>): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(payload).map(([name, value]) => [name, (typeof value === 'string' && values[value]) || value]),
  )
}
