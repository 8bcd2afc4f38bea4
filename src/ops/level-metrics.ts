import { setTimeout as sleep } from 'node:timers/promises'
import { Gauge, type Registry } from '@prometheus-io/client'
import type { Db } from '../db.ts'
import { findLastDay, findLevels, type Level } from './level-queries.ts'

/** Sooner than Prometheus gives up, so that what is known without the database is told. */
const WITHIN_MS = 2_000
const LAST_DAY_EVERY_MS = 60_000

/** What stands in the tables: by the name of its level, how it is called, what it says, and what its label tells. */
const gauges = {
  sends: ['oncehook_open_sends', 'Sends that are not closed, by status; at most 100,000 are counted.', 'status'],
  events: ['oncehook_open_events', 'Events that are pending, failed or quarantined; at most 100,000 are counted.', 'status'],
  oldest_event: ['oncehook_oldest_event_seconds', 'Age of the oldest pending event; 0 without one.'],
  oldest_send: ['oncehook_oldest_send_seconds', 'How long the oldest send that is due has waited; 0 without one.'],
  oldest_review: ['oncehook_oldest_review_seconds', 'Age of the oldest send that needs a decision; 0 without one.'],
  parked: ['oncehook_parked_reports', 'Delivery events that have found no send; at most 100,000 are counted.'],
  held: [
    'oncehook_held',
    'Whether sending, or the matching of delivery events by recipient, waits for a probe or a person: 1 or 0.',
    'what',
  ],
  next_call: ['oncehook_next_call_seconds', 'Seconds until the rate budget has a place for a call; 0 when it has one now.'],
  processes: ['oncehook_processes', 'Processes that were seen in the last 30 seconds, by kind.', 'kind'],
  last_sweep: ['oncehook_last_sweep_seconds', 'Seconds since any worker last swept; no value when none ever did.'],
  sends_last_day: [
    'oncehook_sends_last_day',
    'Sends asked for in the last 24 hours, by status; counted once a minute.',
    'status',
  ],
  settlements_last_day: [
    'oncehook_settlements_last_day',
    'Settlements of the last 24 hours, by grade; counted once a minute.',
    'grade',
  ],
} as const satisfies Record<string, readonly [name: string, help: string, label?: string]>

/** Adds gauges of what stands in the tables. Each refresh reads it anew; while the database is away they have no values. */
export function measureLevels(registry: Registry): { refresh(db: Db): Promise<void> } {
  const registers = [registry]
  const isUp = new Gauge({
    name: 'oncehook_database_up',
    help: 'Whether the database has answered in time: 1 or 0. At 0 what is read from it has no values.',
    registers,
  })
  const levels = new Map(
    Object.entries(gauges).map(([level, [name, help, label]]) => {
      const gauge = new Gauge({ name, help, labelNames: label === undefined ? [] : [label], registers })
      return [level, { gauge, label }] as const
    }),
  )
  let lastDay: Level[] = []
  let lastDayAt = Number.NEGATIVE_INFINITY
  const read = async (db: Db): Promise<Level[]> => {
    const now = await findLevels(db)
    if (performance.now() - lastDayAt > LAST_DAY_EVERY_MS) {
      lastDayAt = performance.now()
      lastDay = await findLastDay(db).catch(() => [])
    }
    return [...now, ...lastDay]
  }

  // However many ask, the database is asked by one at a time.
  let reading: Promise<Level[] | undefined> | undefined
  return {
    async refresh(db) {
      reading ??= read(db)
        .catch(() => undefined)
        .finally(() => {
          reading = undefined
        })
      const rows = await Promise.race([reading, sleep(WITHIN_MS, undefined, { ref: false })])
      isUp.set(rows ? 1 : 0)
      for (const { gauge, label } of levels.values()) {
        gauge.reset()
        // One without a label is 0 by then, which would say that all is well.
        if (label === undefined) gauge.remove()
      }
      for (const { metric, label: value, value: count } of rows ?? []) {
        const { gauge, label } = levels.get(metric) ?? {}
        gauge?.set(label === undefined ? {} : { [label]: value }, count)
      }
    },
  }
}
