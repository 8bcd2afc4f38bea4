import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { type Call, createApi } from './inboxili/api.ts'
import type { Match } from './inboxili/armed.ts'
import { createControl } from './inboxili/control.ts'
import { type Fault, faultSchema } from './inboxili/faults.ts'
import { createReporter, type PostedReport, type Report, reportSchema, type Webhook } from './inboxili/reports.ts'

export interface InboxiliSandboxOptions {
  port?: number
  host?: '127.0.0.1'
  apiKey: string
  webhook?: Webhook
  sendsPerMinute?: number
  /** How long after an accepted send its report is posted. */
  reportDelayMs?: number
  now?: () => number
}

/** A stand-in for Inboxili: its API, its delivery reports, and ways to make both go wrong. */
export interface InboxiliSandbox {
  url: string
  port: number
  /** Every request to the API, in the order of arrival. */
  ledger: readonly Call[]
  /** Every delivery report that was due, in the order of the first try. */
  reports: readonly PostedReport[]
  /** How many requests the API got. */
  readonly requests: number
  /** Arms faults for the next valid calls: each is used `times` times (1), in this order. */
  arm(faults: Fault | readonly Fault[], match?: Match): void
  /** Arms reports for the next accepted emails, in the same way. */
  armReports(reports: Report | readonly Report[], match?: Match): void
  /** Forgets what is armed. */
  disarm(): void
  /** Lets the held answers go; says how many there were. */
  releaseHeld(): number
  /** Posts the held reports; resolves, when they are through, with how many there were. */
  deliverHeld(): Promise<number>
  /** Posts one report at once, a single time; resolves with the status answered, if any. */
  sendReport(payload: Record<string, unknown>, options?: { forged?: boolean }): Promise<number | undefined>
  /** Resolves when no report is scheduled or under way. */
  reportsSettled(): Promise<void>
  setWebhook(webhook: Webhook | undefined): void
  /** Cuts every connection and stops every timer. */
  close(): Promise<void>
}

/** Starts the sandbox on a port of the loopback interface. */
export async function startInboxiliSandbox(options: InboxiliSandboxOptions): Promise<InboxiliSandbox> {
  const now = options.now ?? Date.now
  const reporter = createReporter({
    delayMs: options.reportDelayMs ?? 300,
    now,
    ...(options.webhook && { webhook: options.webhook }),
  })
  const api = createApi({ apiKey: options.apiKey, sendsPerMinute: options.sendsPerMinute ?? 120, now, reporter })
  const control = createControl(api, reporter)

  const server = createServer((req: IncomingMessage, res: ServerResponse) => {
    const handle = req.url?.startsWith('/_sandbox/') ? control : api.handle
    // What fails here is a connection that broke while it was read: there is nobody left to answer.
    handle(req, res).catch(() => req.socket.destroy())
  })
  server.listen(options.port ?? 0, options.host ?? '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo // a listening TCP server has one

  return {
    url: `http://127.0.0.1:${port}`,
    port,
    ledger: api.ledger,
    reports: reporter.posted,
    get requests() {
      return api.ledger.length
    },
    arm(faults, match) {
      api.faults.arm(faultSchema.array().parse([faults].flat()), match)
    },
    armReports(reports, match) {
      reporter.armed.arm(reportSchema.array().parse([reports].flat()), match)
    },
    disarm() {
      api.faults.clear()
      reporter.armed.clear()
    },
    releaseHeld: api.releaseHeld,
    deliverHeld: reporter.deliverHeld,
    sendReport: (payload, { forged = false } = {}) => reporter.send(payload, forged),
    reportsSettled: reporter.settled,
    setWebhook: reporter.setWebhook,
    async close() {
      const closed = once(server, 'close')
      server.close()
      server.closeAllConnections()
      await reporter.close()
      api.releaseHeld()
      await closed
    },
  }
}
