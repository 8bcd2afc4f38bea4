import { Counter, Gauge, Histogram, Registry } from '@prometheus-io/client'
import type { Db } from '../db.ts'

export interface Metrics {
  acknowledged(source: string, result: string, seconds: number): void
  refused(source: string, cause: string): void
  /** The text of /metrics; what stands in tables is counted now, over indexed open rows, and left out while the database is away. */
  text(db: Db): Promise<string>
  contentType: string
}

/** The metrics of one process. Labels are names from the configuration and results, never anything that a sender chose. */
export function createMetrics(): Metrics {
  const registry = new Registry()
  const registers = [registry]
  const acks = new Counter({
    name: 'oncehook_webhook_answers_total',
    help: 'Answers to webhook requests, by source and result.',
    labelNames: ['source', 'result'],
    registers,
  })
  const seconds = new Histogram({
    name: 'oncehook_webhook_answer_seconds',
    help: 'Seconds from the head of a webhook request to its answer.',
    buckets: [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5],
    registers,
  })
  const refusals = new Counter({
    name: 'oncehook_webhook_refusals_total',
    help: 'Webhook requests answered with 401, by source and cause.',
    labelNames: ['source', 'cause'],
    registers,
  })
  const sends = new Gauge({
    name: 'oncehook_open_sends',
    help: 'Sends that are not closed, by status.',
    labelNames: ['status'],
    registers,
  })
  const events = new Gauge({
    name: 'oncehook_open_events',
    help: 'Events that are pending, failed or quarantined.',
    labelNames: ['status'],
    registers,
  })
  const oldest = new Gauge({
    name: 'oncehook_oldest_review_seconds',
    help: 'Age of the oldest send that needs a decision; 0 without one.',
    registers,
  })
  const held = new Gauge({
    name: 'oncehook_held',
    help: 'Whether sending, or the matching of delivery events by recipient, waits for a probe or a person: 1 or 0.',
    labelNames: ['what'],
    registers,
  })
  return {
    contentType: registry.contentType,
    acknowledged(source, result, took) {
      acks.inc({ source, result })
      seconds.observe(took)
    },
    refused: (source, cause) => refusals.inc({ source, cause }),
    async text(db) {
      const counted = await db
        .query<{ kind: string; status: string; count: number; oldest: number }>(
          `select 'send' as kind, status, count(*)::int as count, coalesce(extract(epoch from now() - min(queued_at)), 0)::float8 as oldest
         from email_sends where status in ('queued', 'claimed', 'sending', 'needs_review', 'rejected') group by status
         union all
         select 'event', status, count(*)::int, 0 from webhook_events where status in ('pending', 'failed', 'quarantined') group by status
         union all
         select 'held', 'sending', (held_reason is not null)::int, 0 from sending_control
         union all
         select 'held', 'matching', (matching = 'suggest')::int, 0 from sending_control`,
        )
        .catch(() => undefined)
      sends.reset()
      events.reset()
      oldest.reset()
      held.reset()
      if (counted) oldest.set(0)
      for (const row of counted?.rows ?? []) {
        if (row.kind === 'held') held.set({ what: row.status }, row.count)
        else (row.kind === 'send' ? sends : events).set({ status: row.status }, row.count)
        if (row.status === 'needs_review') oldest.set(row.oldest)
      }
      return registry.metrics()
    },
  }
}
