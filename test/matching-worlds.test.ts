import { expect, test } from 'vitest'
import { inTransaction } from '../src/db.ts'
import { excludeForm } from '../src/sends/address.ts'
import type { CallOutcome } from '../src/sends/outcome.ts'
import { type Called, recordOutcome } from '../src/sends/record.ts'
import { rematch, settle } from '../src/sends/settle.ts'
import { sweepSends } from '../src/sends/sweeps.ts'
import { insertEvent } from './support/ops-rows.ts'
import { insertCall, patientDatabase } from './support/sends.ts'
import { falseBindings, makeWorld, play, type Style, seeded, unknownButSent, type World } from './support/worlds.ts'

const WORLDS: Record<Style, number> = { standard: 8_000, crowded: 8_000, together: 2_000, shared: 2_000 }

test('I7 I9 in 20,000 worlds no event settles a send that is not its own, and most unknown ones are settled', {
  timeout: 60_000,
}, () => {
  const wrong: string[] = []
  const counts: Record<string, { unknown: number; settled: number; foreign: number }> = {}
  for (const [style, worlds] of Object.entries(WORLDS) as [Style, number][]) {
    const count = { unknown: 0, settled: 0, foreign: 0 }
    counts[style] = count
    for (let seed = 1; seed <= worlds; seed += 1) {
      const world = makeWorld(seed, style)
      const { bound, settled, isBreakerClosed } = play(world)
      for (const binding of falseBindings(world, bound)) wrong.push(`${style} world, seed ${seed}: ${binding}`)
      const unknown = unknownButSent(world)
      count.unknown += unknown.length
      count.settled += unknown.filter(({ id }) => settled.has(id)).length
      if (!isBreakerClosed) count.foreign += 1
    }
  }
  expect(wrong).toEqual([])
  expect(counts.standard?.unknown).toBeGreaterThan(3_000)
  expect((counts.standard?.settled ?? 0) / (counts.standard?.unknown ?? 1)).toBeGreaterThanOrEqual(0.8)
  // Its own events never look foreign to an account that nobody shares; with others on it nothing is settled at all.
  expect([counts.standard?.foreign, counts.crowded?.foreign, counts.together?.foreign]).toEqual([0, 0, 0])
  expect(counts.shared?.settled).toBe(0)
})

const database = await patientDatabase()
const { pool } = database
const ignore = async () => undefined

/** Puts a world's calls into the tables, under way; nothing is recorded and no event has come. */
async function insertCalls({ calls }: World, mark: string): Promise<Map<string, Called>> {
  const claims = new Map<string, Called>()
  for (const { id, recipient, claimedAt } of calls) {
    const matchKey = excludeForm(`${mark}${recipient}`)
    const claim = await insertCall(pool, `${mark}${id}`)
    await pool.query('update send_attempts set recipient = $2, match_key = $3, claimed_at = $4 where id = $1', [
      claim.attempt,
      `${mark}${recipient}`,
      matchKey,
      new Date(claimedAt),
    ])
    claims.set(id, { ...claim, matchKey })
  }
  return claims
}

/** Everything that came of a world, without what tells one run from another. */
async function outcomeOf(mark: string): Promise<string> {
  const { rows: sends } = await pool.query(
    `select dedupe_key, status, message_id, delivered_at, bounced_at, bounce_kind, complained_at, settled_at is not null as is_settled,
       (select jsonb_agg(jsonb_build_object('outcome', outcome, 'message', attempts.message_id)) from send_attempts attempts
         where attempts.dedupe_key = sends.dedupe_key) as attempts,
       (select jsonb_agg(jsonb_build_object('from', from_state, 'to', to_state, 'rule', rule_version, 'candidates', jsonb_array_length(candidates)))
         from settlements where settlements.dedupe_key = sends.dedupe_key) as settlements
     from email_sends sends where starts_with(dedupe_key, $1) order by dedupe_key`,
    [mark],
  )
  const { rows: reports } = await pool.query(
    `select event_id, parked, attempts.dedupe_key, array(
       select candidate.dedupe_key from send_attempts candidate where candidate.id = any (reports.candidates) order by 1) as candidates
     from delivery_reports reports join webhook_events events on events.id = event left join send_attempts attempts on attempts.id = attempt
     where starts_with(event_id, $1) order by event_id`,
    [mark],
  )
  return JSON.stringify({ sends, reports }, null, 1).replaceAll(mark, '')
}

/** Lets the events and answers of a world come in this order of steps, some at the same time, each as the service does it. */
async function playInTables(world: World, mark: string, random: () => number) {
  const claims = await insertCalls(world, mark)
  const records = world.calls.map(({ id, says, saysId }) => async () => {
    const claim = claims.get(id) as Called // each call has one
    const answer: CallOutcome =
      says === 'accepted'
        ? { kind: 'accepted', messageId: saysId && `${mark}${saysId}` }
        : says === 'unknown'
          ? { kind: 'unknown', reason: 'timeout', error: 'no answer in 15 s' }
          : { kind: 'refused', httpStatus: 422, code: 'c', message: 'm', error: '422 c: m' }
    await inTransaction(pool, (tx) => recordOutcome(tx, ignore, claim, answer))
    await rematch(pool, claim.matchKey, world.isExclusive)
  })
  const rows = new Map<string, string>()
  for (const { id } of world.events) rows.set(id, await insertEvent(pool, `${mark}${id}`, { source: 'inboxili' }))
  const arrivals = world.events.flatMap((event) =>
    event.arrivesAt.map(() => async () => {
      const { id, kind, messageId, recipient, occurredAt, hasOwnTime } = event
      const report = {
        event: rows.get(id) ?? '',
        kind,
        messageId: `${mark}${messageId}`,
        recipient: `${mark}${recipient}`,
        occurredAt: new Date(occurredAt),
        hasOwnTime,
        ...(kind === 'bounced' && { bounceKind: 'hard' as const }),
      }
      const matchKey = await inTransaction(pool, (tx) => settle(tx, report, world.isExclusive))
      if (matchKey !== null) await rematch(pool, matchKey, world.isExclusive)
    }),
  )
  const steps = [...records, ...arrivals].map((run) => ({ run, at: random() })).sort((a, b) => a.at - b.at)
  while (steps.length > 0) await Promise.all(steps.splice(0, 1 + Math.floor(random() * 3)).map(({ run }) => run()))
}

/** Plays worlds in two orders each, four worlds at a time; says what was not as it must be, and how many unknown calls were told. */
async function comparePlays(style: Style, worlds: number): Promise<{ failures: string[]; told: number }> {
  const seeds = Array.from({ length: worlds }, (_, index) => index + 1)
  const found = { failures: [] as string[], told: 0 }
  const playNext = async (): Promise<void> => {
    const seed = seeds.shift()
    if (seed === undefined) return
    const world = makeWorld(seed, style)
    // To yesterday, as the sweep looks back 30 days only.
    const shift = Date.now() - 24 * 3_600_000 - Math.min(...world.calls.map((call) => call.claimedAt))
    for (const call of world.calls) call.claimedAt += shift
    for (const event of world.events) event.occurredAt += shift
    const mark = (order: number) => `${style}${seed}o${order}-`
    for (const order of [1, 2]) await playInTables(world, mark(order), seeded(seed * 10 + order))

    const [one, other] = [await outcomeOf(mark(1)), await outcomeOf(mark(2))]
    if (one !== other) found.failures.push(`${style} world, seed ${seed}: the order matters:\n${one}\n${other}`)
    const { rows } = await pool.query<{ id: string; message: string; outcome: string }>(
      `select substr(dedupe_key, length($1) + 1) as id, substr(message_id, length($1) + 1) as message, outcome
       from send_attempts where starts_with(dedupe_key, $1) and message_id is not null`,
      [mark(1)],
    )
    const bindings = falseBindings(world, new Map(rows.map(({ id, message }) => [id, message])))
    for (const binding of bindings) found.failures.push(`${style} world, seed ${seed}: ${binding}`)
    found.told += rows.filter(({ outcome }) => outcome === 'unknown').length
    return playNext()
  }
  await Promise.all([playNext(), playNext(), playNext(), playNext()])
  return found
}

test('I9 I10 I11 in 150 worlds in the tables any order of arrival comes to the same, and to the truth', {
  timeout: 120_000,
}, async () => {
  const own = await comparePlays('together', 130)
  const { rows } = await pool.query('select matching from sending_control')
  const shared = await comparePlays('shared', 20)

  expect([...own.failures, ...shared.failures]).toEqual([])
  expect(own.told).toBeGreaterThan(20)
  expect(rows).toEqual([{ matching: 'auto' }])
  expect(shared.told).toBe(0)
})

test('the sweep finds nothing to do after all that', async () => {
  const settings = { staleAfterMs: 86_400_000, reviewAfterMs: 86_400_000, isExclusive: true }

  expect(await sweepSends(pool, ignore, settings, async () => [])).toMatchObject({ joinedMessages: 0 })
})
