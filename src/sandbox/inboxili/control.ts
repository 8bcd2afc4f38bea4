import type { IncomingMessage, ServerResponse } from 'node:http'
import { z } from 'zod'
import { type Api, readJson, writeAnswer } from './api.ts'
import { matchSchema } from './armed.ts'
import { errorAnswer, faultSchema } from './faults.ts'
import { type Reporter, reportSchema } from './reports.ts'

const faultsSchema = z.strictObject({ faults: z.array(faultSchema).min(1), ...matchSchema.shape })
const reportsSchema = z.strictObject({ reports: z.array(reportSchema).min(1), ...matchSchema.shape })
const rate = z.number().min(0).max(1)
const isShare = (rated: readonly { rate: number }[]) => rated.reduce((sum, one) => sum + one.rate, 0) <= 1
const mixSchema = z.strictObject({
  seed: z.int(),
  faults: z
    .array(z.strictObject({ rate, fault: faultSchema }))
    .default([])
    .refine(isShare, 'the rates are more than 1 in all'),
  reports: z
    .array(z.strictObject({ rate, report: reportSchema }))
    .default([])
    .refine(isShare, 'the rates are more than 1 in all'),
})
const sendReportSchema = z.strictObject({ payload: z.record(z.string(), z.json()), forged: z.boolean().default(false) })

const LOOPBACK_ADDRESSES = ['127.0.0.1', '::1', '::ffff:127.0.0.1']

/** The sandbox's own routes under /_sandbox/, for other processes on this machine. */
export function createControl(api: Api, reporter: Reporter): (req: IncomingMessage, res: ServerResponse) => Promise<void> {
  const startedAtMs = Date.now()
  const routes: Record<string, (body: () => Promise<unknown>) => Promise<unknown>> = {
    'GET /_sandbox/ledger': async () => ({
      startedAtMs,
      held: reporter.held,
      calls: api.ledger,
      reports: reporter.posted,
    }),
    'POST /_sandbox/faults': async (body) => {
      const { faults, ...match } = faultsSchema.parse(await body())
      api.faults.arm(faults, match)
      return { armed: faults.length }
    },
    'DELETE /_sandbox/faults': async () => {
      api.faults.clear()
      return { armed: 0 }
    },
    'POST /_sandbox/faults/mix': async (body) => {
      const { seed, faults, reports } = mixSchema.parse(await body())
      api.faults.mix(
        faults.map(({ rate, fault }) => ({ rate, item: fault })),
        seed,
      )
      // Numbers of their own: which calls fail must not depend on which were accepted.
      reporter.armed.mix(
        reports.map(({ rate, report }) => ({ rate, item: report })),
        seed + 1,
      )
      return { mixed: faults.length + reports.length }
    },
    'POST /_sandbox/faults/release': async () => ({ released: api.releaseHeld() }),
    'POST /_sandbox/reports': async (body) => {
      const { reports, ...match } = reportsSchema.parse(await body())
      reporter.armed.arm(reports, match)
      return { armed: reports.length }
    },
    'DELETE /_sandbox/reports': async () => {
      reporter.armed.clear()
      return { armed: 0 }
    },
    'POST /_sandbox/reports/deliver': async () => ({ delivered: await reporter.deliverHeld() }),
    'POST /_sandbox/send-report': async (body) => {
      const { payload, forged } = sendReportSchema.parse(await body())
      return { answer: (await reporter.send(payload, forged)) ?? null }
    },
  }

  return async (req, res) => {
    if (!isLocal(req)) return writeAnswer(res, errorAnswer(403, 'forbidden', 'only for programs on this machine'))
    const route = routes[`${req.method} ${new URL(req.url ?? '/', 'http://sandbox').pathname}`]
    if (route === undefined) return writeAnswer(res, errorAnswer(404, 'not_found', `one of: ${Object.keys(routes).join(', ')}`))
    try {
      const result = await route(async () => {
        const json = await readJson(req)
        return json.ok ? json.value : undefined
      })
      writeAnswer(res, { status: 200, body: JSON.stringify(result) })
    } catch (error) {
      if (!(error instanceof z.ZodError)) throw error
      writeAnswer(res, errorAnswer(400, 'bad_request', z.prettifyError(error)))
    }
  }
}

/** There is no sign-in here: a web page that a browser on this machine shows must not get in either. */
function isLocal(req: IncomingMessage): boolean {
  const { host = '', origin } = req.headers
  if (!LOOPBACK_ADDRESSES.includes(req.socket.remoteAddress ?? '')) return false
  return /^(127\.0\.0\.1|localhost|\[::1\])(:\d+)?$/.test(host) && (origin === undefined || origin === `http://${host}`)
}
