import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { pino } from 'pino'
import { afterAll } from 'vitest'
import { createApp } from '../../src/app.ts'
import { createFingerprints, readFingerprintKey } from '../../src/events/fingerprint.ts'
import { createTallies } from '../../src/events/tallies.ts'
import { createChanges } from '../../src/ops/changes.ts'
import { createOverview } from '../../src/ops/overview.ts'
import type { PageDeps } from '../../src/ops/page/routes.ts'
import { startHeartbeat } from '../../src/ops/processes.ts'
import { createPanel } from '../../src/sandbox/panel.ts'
import type { TestDatabase } from './database.ts'
import { testPages } from './page.ts'
import { hexHmac, INBOXILI_SECRET, stripeSignature, testService } from './service.ts'

const STRIPE_SECRET = 'whsec_of_the_stage'

const rules = {
  sources: {
    stripe: { provider: 'stripe' as const, secrets: [STRIPE_SECRET] },
    shop: { provider: 'stripe' as const, secrets: ['whsec_of_the_shop'] },
    inboxili: { provider: 'inboxili' as const, secrets: [INBOXILI_SECRET] },
  },
  followUps: [
    {
      name: 'invoice.paid',
      source: 'stripe',
      type: 'invoice.paid',
      email: ({ data }: { data: { object: { number: string; customer_email: string; customer_name?: string } } }) => ({
        key: `invoice:${data.object.number}:paid`,
        to: data.object.customer_email,
        from_email: 'billing@example.com',
        subject: `Your receipt for ${data.object.number}`,
        html_body: `<p>Thank you, ${data.object.customer_name ?? 'you'}</p>`,
      }),
    },
  ],
}

export type OpsStage = Awaited<ReturnType<typeof openOpsStage>>

/** The whole service on a port, with people signed in, its email API stood in for, and its jobs run by hand. */
export async function openOpsStage(database: TestDatabase, more: Partial<PageDeps> = {}) {
  const service = await testService(database, rules)
  const fingerprints = createFingerprints(await readFingerprintKey(database.pool))
  const panel = createPanel({
    sandboxUrl: service.sandbox.url,
    serviceUrl: () => baseURL,
    source: () => ({
      name: 'stripe',
      provider: 'stripe',
      options: {},
      secret: STRIPE_SECRET,
      mode: 'live',
      type: 'invoice.paid',
      otherType: undefined,
    }),
  })
  const pages = await testPages(database, rules, { sandbox: panel, fingerprints, ...more })
  const lines: string[] = []
  const log = pino({ level: 'debug' }, { write: (line: string) => void lines.push(line) })
  const findOverview = createOverview(database.pool, () => ({ config: service.config.current }))
  const changes = createChanges({ reads: database.pool, findOverview, log, everyMs: 50 })
  const tallies = createTallies(database.pool, log, 50)
  const heartbeat = startHeartbeat(database.pool, { kind: 'worker', version: '0.0.0' }, log)
  heartbeat.swept()
  const stopping = new AbortController()
  const app = createApp({
    log,
    events: { ...service.eventDeps, log, tallies, fingerprints },
    ops: { ...pages.deps, log, findOverview, changes, stopping: stopping.signal, ...more },
    notReady: async () => undefined,
    metrics: async () => ({ text: '', contentType: 'text/plain' }),
  })
  const server = createServer(app)
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done))
  afterAll(async () => {
    stopping.abort()
    server.close()
    server.closeAllConnections()
    await Promise.all([tallies.stop(), heartbeat.stop()])
  })
  const baseURL = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  service.sandbox.setWebhook({ url: `${baseURL}/webhooks/inboxili`, secret: INBOXILI_SECRET })

  const post = async (source: string, body: string, headers: Record<string, string>) => {
    const answer = await fetch(`${baseURL}/webhooks/${source}`, { method: 'POST', body, headers })
    return answer.status
  }
  return {
    baseURL,
    server,
    service,
    deps: pages.deps,
    log: lines,
    cookies: pages.cookies,
    /** A Stripe event as it would come, with these bytes. */
    postStripe: (body: string, secret = STRIPE_SECRET) =>
      post('stripe', body, { 'stripe-signature': stripeSignature(body, secret, Math.floor(Date.now() / 1000)) }),
    /** What Inboxili reports, signed. */
    report: (report: object) => {
      const body = JSON.stringify(report)
      return post('inboxili', body, { 'x-inboxili-signature': hexHmac(body, INBOXILI_SECRET) })
    },
    /** Works until nothing is left to do, reports included. */
    async work(): Promise<void> {
      await service.drain()
      await service.sandbox.reportsSettled()
      await service.drain()
    },
  }
}

/** The body of a paid invoice. */
export function paidInvoice(id: string, number: string, email: string, more: object = {}): string {
  return JSON.stringify({
    id,
    object: 'event',
    type: 'invoice.paid',
    created: Math.floor(Date.now() / 1000),
    livemode: true,
    data: { object: { id: `in_${number}`, object: 'invoice', number, customer_email: email, ...more } },
  })
}
