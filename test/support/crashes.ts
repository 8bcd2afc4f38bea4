import request from 'supertest'
import type { UserConfig } from '../../src/config.ts'
import { key } from '../../src/config.ts'
import { type FaultPoint, faultPoints } from '../../src/fault-points.ts'
import type { TestDatabase } from './database.ts'
import { payment, secrets } from './processes.ts'
import { hexHmac, type TestService, testService } from './service.ts'

/** Where a process may die, and what must have become of the one payment of which it was told, once others have done their part. */
interface CrashPoint {
  at: FaultPoint | { commitOf: RegExp } | 'insert' | 'request' | 'answer'
  /** `unknown`: in front of a person, never called again. */
  end: 'sent' | 'delivered' | 'unknown' | 'decided'
}

const code = (at: FaultPoint, end: CrashPoint['end'] = 'sent') => ({ at, end }) satisfies CrashPoint
const commit = (commitOf: RegExp, end: CrashPoint['end'] = 'sent') => ({ at: { commitOf }, end }) satisfies CrashPoint

/** Each place at which a process may end. */
export const crashPoints = {
  'ingest.read': code('ingest.read'),
  'ingest.verified': code('ingest.verified'),
  'ingest.inserted': { at: 'insert', end: 'sent' },
  'ingest.commit_sent': commit(/^insert-events/),
  'ingest.committed': code('ingest.committed'),
  'ingest.acked': code('ingest.acked'),
  'job.fetched': code('job.fetched'),
  'job.before_complete': code('job.before_complete'),
  'send.before_claim': code('send.before_claim'),
  'send.claim_commit_sent': commit(/^claim-send /),
  'send.claimed': code('send.claimed'),
  'send.request_partial': { at: 'request', end: 'unknown' },
  'send.request_sent': { at: 'answer', end: 'unknown' },
  'send.response_received': code('send.response_received', 'unknown'),
  'send.record_commit_sent': commit(/^record-send /),
  'send.recorded': code('send.recorded'),
  'send.release_commit_sent': commit(/^record-send /),
  'settle.locked': code('settle.locked', 'delivered'),
  'settle.commit_sent': commit(/^store-report /, 'delivered'),
  'sweep.commit_sent': commit(/'never_called'/),
  'ops.commit_sent': commit(/^decide-send /, 'decided'),
  'parked.rescan': code('parked.rescan'),
} as const satisfies Record<string, CrashPoint>
export type CrashPointName = keyof typeof crashPoints

/** Places of the code that no test of the list above comes to. */
export const unlisted = faultPoints.filter((point) => !Object.values(crashPoints).some(({ at }) => at === point))

/** The service in this process, with the source, the rule and the secrets of the processes; it plays those that did not crash. */
export function survivor(database: TestDatabase): Promise<TestService> {
  return testService(database, {
    sources: {
      stripe: { provider: 'stripe', secrets: [secrets.STRIPE_WEBHOOK_SECRETS] },
      inboxili: { provider: 'inboxili', secrets: [secrets.INBOXILI_WEBHOOK_SECRETS] },
    },
    followUps: [
      {
        source: 'stripe',
        type: 'invoice.paid',
        email: ({ data }) => ({
          key: key('stripe', data.object.id, 'paid'),
          to: data.object.customer_email,
          from_email: 'billing@example.com',
          subject: 'Your receipt',
          html_body: '<p>Thank you</p>',
        }),
      },
    ],
  } satisfies UserConfig)
}

/** The key of the email that a payment causes. */
export const keyOf = (id: string) => `stripe:in_${id}:paid`

/** The provider posts a payment; the status answered, or 0. */
export async function post(service: TestService, id: string): Promise<number> {
  const { headers, body } = payment(id)
  return request(service.app)
    .post('/webhooks/stripe')
    .set(headers)
    .send(body)
    .then(
      ({ status }) => status,
      () => 0,
    )
}

/** Inboxili reports that the email of a payment was delivered. */
export async function report(service: TestService, id: string): Promise<void> {
  const call = service.sandbox.ledger.find(({ to }) => to === `${id}@example.com`)
  const body = JSON.stringify({
    event: 'delivered',
    message_id: call?.messageId,
    to: call?.to,
    timestamp: new Date().toISOString(),
  })
  await request(service.app)
    .post('/webhooks/inboxili')
    .set({ 'content-type': 'application/json', 'x-inboxili-signature': hexHmac(body, secrets.INBOXILI_WEBHOOK_SECRETS) })
    .send(body)
}

/** What others do until nothing is left to do: sweeps that come when all claims are stale, and the jobs that they make. */
export async function recover({ pool }: TestDatabase, service: TestService): Promise<void> {
  for (let round = 0; round < 2; round += 1) {
    await pool.query(
      `update email_sends set claimed_at = claimed_at - interval '301 s', sending_at = sending_at - interval '301 s',
         send_after = case when send_after is not null then now() end
       where state in ('claimed', 'sending') or send_after is not null`,
    )
    await service.sweep(300_000)
    await service.drain()
  }
}

/** What has become of one payment in the tables and at Inboxili. */
export async function findEnd({ pool }: TestDatabase, service: TestService, id: string) {
  const { rows } = await pool.query<{ status: string; calls: number; audited: number }>(
    `select sends.status,
       (select count(*)::int from send_attempts where dedupe_key = sends.dedupe_key and called_at is not null) as calls,
       (select count(*)::int from audit_log where subject = 'send:' || sends.dedupe_key) as audited
     from email_sends sends where dedupe_key = $1`,
    [keyOf(id)],
  )
  const { rows: events } = await pool.query<{ status: string }>('select status from webhook_events where event_id = $1', [
    `evt_${id}`,
  ])
  const ledger = service.sandbox.ledger.filter(({ to }) => to === `${id}@example.com`)
  return { events, ...rows[0], accepted: ledger.filter(({ accepted }) => accepted).length }
}
