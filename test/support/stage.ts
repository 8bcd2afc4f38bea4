import { afterAll } from 'vitest'
import { key } from '../../src/config.ts'
import { inTransaction, openPool } from '../../src/db.ts'
import { openJobs } from '../../src/follow-ups/queue.ts'
import type { Message } from '../../src/sends/message.ts'
import { triggerSend } from '../../src/sends/trigger.ts'
import type { TestDatabase } from './database.ts'
import { lineTo } from './line.ts'
import { listen } from './posting.ts'
import { resetControl } from './sends.ts'
import { testService } from './service.ts'

/** All that a schedule leaves. */
const tables = [
  'webhook_events',
  'webhook_bodies',
  'webhook_conflicts',
  'delivery_reports',
  'follow_ups',
  'email_sends',
  'send_attempts',
  'settlements',
  'audit_log',
  'email_marks',
  'pgboss.job',
]

const timesOfSends = [
  'queued_at',
  'send_after',
  'claimed_at',
  'sending_at',
  'completed_at',
  'delivered_at',
  'bounced_at',
  'complained_at',
  'settled_at',
]

export type Stage = Awaited<ReturnType<typeof openStage>>

/** Where schedules are played: the service on a database of its own, a twin whose line to it loses answers, and the email API. */
export async function openStage(database: TestDatabase) {
  const { pool, url } = database
  const config = {
    sources: { stripe: { provider: 'stripe', secrets: ['whsec_test_A'] } },
    followUps: [
      {
        source: 'stripe',
        type: 'invoice.paid',
        email: ({ data: { object } }: { data: { object: { id: string; to: string; policy: 'claim' } } }) => {
          // Of policy `timestamp` the last part of the key doesn't belong to the kind.
          const fact = String(object.policy) === 'timestamp' ? key('note', object.id) : key('invoice', object.id, 'paid')
          return {
            key: fact,
            policy: object.policy,
            to: object.to,
            from_email: 'billing@example.com',
            subject: fact,
            html_body: '<p>Hi</p>',
          }
        },
      },
    ],
  }
  const service = await testService(database, config)
  const { deps, sandbox } = service
  const line = await lineTo(url)
  const unsurePool = openPool({ url: line.url, name: 'unsure', max: 5, connectionTimeout: 10_000 })
  afterAll(() => unsurePool.end())
  const unsure = await testService({ url, pool: unsurePool }, config)
  const { post } = await listen(service.app)
  const jobs = await openJobs(url)
  sandbox.armReports({ kind: 'never' }, { times: 'always' })

  /** Takes away what the schedule before has left. */
  async function clear(): Promise<void> {
    // Much faster than truncating that many tables with a few rows each.
    await pool.query(
      `begin; set local session_replication_role = replica;
       ${tables.map((table) => `delete from ${table};`).join(' ')}
       select setval(pg_get_serial_sequence('webhook_events', 'id'), 1, false); commit`,
    )
    await resetControl(pool)
    line.mend()
  }

  /** Has it all be so much longer ago. */
  async function pass(seconds: number): Promise<void> {
    const shift = (table: string, ...columns: string[]) =>
      `update ${table} set ${columns.map((it) => `${it} = ${it} - $1::int * interval '1 s'`).join(', ')} returning 1`
    await pool.query(
      `with a as (${shift('email_sends', ...timesOfSends)}),
         b as (${shift('send_attempts', 'claimed_at', 'called_at', 'ended_at')}), c as (${shift('delivery_reports', 'occurred_at')}),
         d as (${shift('sending_control', 'held_at', 'next_probe_at')}), e as (${shift('webhook_events', 'received_at', 'processed_at')}),
         f as (${shift('pgboss.job', 'start_after')}) select 1`,
      [seconds],
    )
  }

  /** What a trigger of this key would be told; it is taken back. */
  async function wouldQueue(name: string, message: Message): Promise<string> {
    let outcome = ''
    const takenBack = new Error('taken back')
    await inTransaction(pool, async (tx) => {
      const request = { key: name, policy: 'claim', message, sourceEvent: undefined, requestedBy: 'token:test' } as const
      outcome = (await triggerSend(tx, deps.enqueue, request)).outcome
      throw takenBack
    }).catch((error: unknown) => {
      if (error !== takenBack) throw error
    })
    return outcome
  }

  return { pool, service, unsure, unsurePool, line, post, jobs, clear, pass, wouldQueue }
}
