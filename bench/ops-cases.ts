import { readConfig } from '../src/config.ts'
import type { Db } from '../src/db.ts'
import { findEventsOfRun } from '../src/events/run-events.ts'
import type { RunFilter } from '../src/events/runs.ts'
import { listAudit } from '../src/ops/audit-queries.ts'
import { countEvents, findEvent, listEvents } from '../src/ops/event-queries.ts'
import { findEvidence } from '../src/ops/evidence.ts'
import { auditFilter, encodeCursor, eventFilter, sendFilter } from '../src/ops/filters.ts'
import { findLastDay, findLevels } from '../src/ops/level-queries.ts'
import { findOverview } from '../src/ops/overview.ts'
import { findShell } from '../src/ops/page/shell.ts'
import { countReports, listReports, reportFilter } from '../src/ops/report-queries.ts'
import { countReview, listReview, reviewFilter } from '../src/ops/review-queries.ts'
import { explainNoHit, findAnything, searchBodies } from '../src/ops/search.ts'
import { countSends, findSend, listSends } from '../src/ops/send-queries.ts'
import { findSending } from '../src/ops/sending-queries.ts'
import { findSeries } from '../src/ops/series.ts'
import { listSources } from '../src/ops/source-queries.ts'

/** One thing that a page or the API asks for. */
export interface Case {
  name: string
  run(db: Db): Promise<unknown>
  /** What it may take where that is more than usual: it is the worst that can be asked. */
  mostMs?: number
}

type Query = Record<string, string>

/** What is there to be found, for the values of the cases. */
export interface Samples {
  now: Date
  /** A send of the middle, its recipient, its message ID and the event that asked for it. */
  key: string
  recipient: string
  messageId: string
  eventId: string
  eventRow: string
  /** A send that needs a decision. */
  openKey: string
}

const config = readConfig({
  sources: Object.fromEntries(
    ['stripe', 'shopify', 'paypal', ...Array.from({ length: 26 }, (_, index) => `shop_${String(index).padStart(2, '0')}`)].map(
      (name) => [name, { provider: 'stripe', secrets: ['whsec_of_the_bench'] }],
    ),
  ),
})

/** The questions of every list, with filters and searches that match all, many, few and none. */
export function casesOf({ now, key, recipient, messageId, eventId, eventRow, openKey }: Samples): Case[] {
  const at = (days: number) => new Date(now.getTime() - days * 86_400_000)
  const daysAgo = (days: number) => at(days).toISOString()
  const number = key.split(':')[1] ?? ''
  const sendLists: [string, Query][] = [
    ['newest', {}],
    ['one status, rare', { status: 'needs_review' }],
    ['one status, common', { status: 'delivered' }],
    ['one status, none of it', { status: 'claimed' }],
    ['several statuses', { status: 'needs_review,bounced,rejected' }],
    ['last 24 hours', { since: daysAgo(1) }],
    ['one day, long ago', { since: daysAgo(80), until: daysAgo(79) }],
    ['with a call unknown, 1 h', { unknown_since: '1h' }],
    ['with a call unknown, 7 d, of a status', { unknown_since: '7d', status: 'needs_review' }],
    ['a policy', { policy: 'per_period' }],
    ['a policy that nobody uses', { policy: 'unguarded' }],
    ['a policy and a status', { policy: 'per_period', status: 'bounced' }],
    ['a source', { source: 'shop_03' }],
    ['a source that is silent', { source: 'retired' }],
    ['a source and a status', { source: 'stripe', status: 'bounced,needs_review' }],
    ['a source and a policy that never meet', { source: 'paypal', policy: 'timestamp' }],
    ['a source that is not there', { source: 'nowhere' }],
    ['a recipient', { recipient }],
    ['search: a key', { q: key }],
    ['search: a message ID', { q: messageId }],
    ['search: an event ID', { q: eventId }],
    ['search: an address', { q: recipient }],
    ['search: part of an address, common', { q: 'example' }],
    ['search: part of an address, rare', { q: recipient.slice(0, 9) }],
    ['search: a number', { q: number }],
    ['search: in most keys', { q: 'invoice' }],
    ['search: in most keys, of one status', { q: 'invoice', status: 'needs_review' }],
    ['search: in a tenth of the keys', { q: 'refund' }],
    ['search: in a hundredth of the keys', { q: 'INV-99' }],
    ['search: in keys of long ago only', { q: 'INV-12' }],
    ['search: one character', { q: 'i' }],
    ['search: two characters', { q: 're' }],
    ['search: in no key', { q: 'xyzzy' }],
    ['search: in no key, long', { q: 'invoice:INV-1042:unpaid' }],
    ['search: %', { q: '%%%' }],
    ['search: a customer', { q: 'cus_a87ff679a2f3e7' }],
    ['search: what most events name', { q: 'acct_1acme' }],
  ]
  const eventLists: [string, Query][] = [
    ['newest', {}],
    ['one status, rare', { status: 'failed' }],
    ['one status, common', { status: 'processed' }],
    ['several statuses', { status: 'ignored,quarantined' }],
    ['a source', { source: 'shop_03' }],
    ['a source that is silent', { source: 'retired' }],
    ['a source that has few', { source: 'rare' }],
    ['a source that is not there', { source: 'nowhere' }],
    ['a source and a status that never meet', { source: 'inboxili', status: 'ignored' }],
    ['a type', { type: 'charge.succeeded' }],
    ['a type, rare', { type: 'dispute.created' }],
    ['a type that is not there', { type: 'nothing.happened' }],
    ['a type and a source that never meet', { type: 'invoice.paid', source: 'inboxili' }],
    ['a type and a status that never meet', { type: 'email.delivered', status: 'ignored' }],
    ['of tests', { mode: 'test' }],
    ['live', { mode: 'live' }],
    ['in conflict', { has: 'conflict' }],
    ['redelivered', { has: 'redelivery' }],
    ['redelivered, of a source', { has: 'redelivery', source: 'shop_05' }],
    ['last 24 hours', { since: daysAgo(1) }],
    ['one day, long ago', { since: daysAgo(80), until: daysAgo(79) }],
    ['one day, long ago, of a type', { since: daysAgo(80), until: daysAgo(79), type: 'payout.paid' }],
    ['an event ID', { event_id: eventId }],
    ['a reference', { ref: 'cus_a87ff679a2f3e7' }],
    ['what most events name', { ref: 'acct_1acme' }],
  ]
  const closed = ['processed', 'ignored', 'failed']
  const runs: [string, RunFilter][] = [
    ['everything', { status: closed }],
    ['a source', { status: closed, source: 'shop_03' }],
    ['a source that brings much, of one day', { status: closed, source: 'stripe', since: at(80), until: at(79) }],
    ['a source that is not there', { status: closed, source: 'nowhere' }],
    ['a type', { status: closed, type: 'charge.succeeded' }],
    ['a type, rare', { status: closed, type: 'dispute.created' }],
    ['a type, of the last 40 days', { status: closed, type: 'charge.succeeded', since: at(40) }],
    ['a type and a source', { status: closed, type: 'invoice.paid', source: 'stripe' }],
    ['a type and a source that never meet', { status: closed, type: 'invoice.paid', source: 'inboxili' }],
    ['a type and a source, of one day', { status: closed, type: 'invoice.paid', source: 'stripe', since: at(80), until: at(79) }],
    ['what failed', { status: ['failed', 'quarantined'] }],
    ['ignored', { status: ['ignored'] }],
    ['ignored, of one hour', { status: ['ignored'], since: at(80), until: new Date(at(80).getTime() + 3_600_000) }],
    ['event IDs', { status: closed, event_ids: [eventId, 'evt_nowhere'] }],
  ]
  const sends = sendFilter(() => now)
  const events = eventFilter(() => now)
  return [
    ...sendLists.flatMap(([name, query]): Case[] => [
      { name: `sends, ${name}`, run: (db) => listSends(db, sends.parse(query)) },
      { name: `sends, ${name}: count`, run: (db) => countSends(db, sends.parse(query)) },
    ]),
    { name: 'sends, page 100', run: (db) => listSends(db, sends.parse({ cursor: cursorAt(daysAgo(45)) })) },
    ...eventLists.flatMap(([name, query]): Case[] => [
      { name: `events, ${name}`, run: (db) => listEvents(db, events.parse(query)) },
      { name: `events, ${name}: count`, run: (db) => countEvents(db, events.parse(query)) },
    ]),
    // Up to 10,000 of them, for whoever plans a replay.
    ...runs.map(([name, filter]): Case => ({ name: `run: ${name}`, run: (db) => findEventsOfRun(db, filter, 10_000) })),
    {
      name: 'sends, search: in a tenth of the keys, of long ago only',
      run: (db) => listSends(db, sends.parse({ q: 'INV-1' })),
      mostMs: 1_000,
    },
    { name: 'a send', run: (db) => findSend(db, key) },
    { name: 'an event', run: (db) => findEvent(db, eventRow) },
    ...[key, number, eventId, recipient, 'xyzzy', 'invoice', 'acct_1acme'].flatMap((q): Case[] => [
      { name: `search box: ${q}`, run: (db) => findAnything(db, q) },
      { name: `why nothing was found: ${q}`, run: (db) => explainNoHit(db, q) },
    ]),
    { name: 'raw bodies of 24 h', run: (db) => searchBodies(db, 'xyzzy', new Date(daysAgo(1))) },
    { name: 'overview', run: (db) => findOverview(db, { config }) },
    ...(['1h', '24h', '7d'] as const).map((range): Case => ({ name: `charts, ${range}`, run: (db) => findSeries(db, range) })),
    { name: 'frame of a page', run: (db) => findShell(db, 'mia', undefined) },
    { name: 'sending', run: (db) => findSending(db) },
    { name: 'sources', run: (db) => listSources(db, { config, fingerprints: () => [], publicUrl: undefined, now }) },
    { name: 'decisions', run: (db) => listReview(db, reviewFilter.parse({})) },
    { name: 'decisions: count', run: (db) => countReview(db) },
    { name: 'evidence', run: (db) => findEvidence(db, openKey) },
    { name: 'unmatched reports', run: (db) => listReports(db, reportFilter.parse({})) },
    { name: 'unmatched reports: count', run: (db) => countReports(db) },
    { name: 'audit', run: (db) => listAudit(db, auditFilter(() => now).parse({})) },
    { name: 'metrics', run: (db) => findLevels(db) },
    { name: 'metrics of the last day', run: (db) => findLastDay(db) },
  ]
}

/** Where a page of sends begins. */
const cursorAt = (at: string) => encodeCursor([`${at.slice(0, 23)}000Z`, 'k'])
