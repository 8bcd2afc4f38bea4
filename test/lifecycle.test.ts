import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, expect, test } from 'vitest'
import { moves, states, statuses } from '../src/sends/lifecycle.ts'
import { testDatabase } from './support/database.ts'
import { insertSend } from './support/ops-rows.ts'

const { pool } = await testDatabase()

afterEach(async () => {
  await pool.query('delete from email_sends')
})

const legalMoves = [
  'abandoned → needs_review',
  'claimed → queued',
  'claimed → sending',
  'needs_review → abandoned',
  'needs_review → queued',
  'needs_review → rejected',
  'needs_review → sent',
  'queued → claimed',
  'queued → sent',
  'rejected → claimed',
  'rejected → queued',
  // Beyond the table of the contract: ADR 5.
  'rejected → sent',
  'sending → needs_review',
  'sending → queued',
  'sending → rejected',
  'sending → sent',
  'sent → needs_review',
]

test('the table of moves allows what the contract allows, and nothing else', () => {
  const all = Object.values(moves as Record<string, Record<string, readonly string[]>>).flatMap((by) =>
    Object.entries(by).flatMap(([to, sources]) => sources.map((from) => `${from} → ${to}`)),
  )

  expect([...new Set(all)].sort()).toEqual(legalMoves)
})

test('the database allows exactly the legal moves', async () => {
  const allowed: string[] = []
  for (const from of states) {
    for (const to of states) {
      if (from === to) continue
      const key = `${from}:${to}`
      await insertSend(pool, key, { state: from })
      const moved = await pool
        .query(
          `update email_sends set state = $2, completed_at = now(), claimed_at = now(), claim_token = gen_random_uuid() where dedupe_key = $1`,
          [key, to],
        )
        .then(
          () => true,
          (error: { message: string }) => {
            expect(error.message).toBe(`email_sends: ${from} to ${to} is not a legal move`)
            return false
          },
        )
      if (moved) allowed.push(`${from} → ${to}`)
    }
  }

  expect(allowed.sort()).toEqual(legalMoves)
})

test('the diagram in docs/sends.md draws exactly the legal moves', () => {
  const page = readFileSync(join(import.meta.dirname, '../docs/sends.md'), 'utf8')
  const diagram = /```mermaid\nstateDiagram-v2\n([\s\S]*?)```/.exec(page)?.[1] ?? ''
  const lines = diagram.trim().split('\n')
  const drawn = lines.map((line) => /^ {2}(\w+|\[\*\]) --> (\w+): .+$/.exec(`  ${line.trim()}`))

  expect(drawn.every((it) => it !== null)).toBe(true)
  const all = drawn.map((it) => `${it?.[1]} → ${it?.[2]}`)
  expect(all.filter((it) => it.startsWith('[*]'))).toEqual(['[*] → queued'])
  expect(all.filter((it) => !it.startsWith('[*]')).sort()).toEqual(legalMoves)
})

test('the check constraint knows the same states', async () => {
  const { rows } = await pool.query<{ definition: string }>(
    `select pg_get_constraintdef(oid) as definition from pg_constraint where conname = 'email_sends_state'`,
  )

  const inDatabase = [...(rows[0]?.definition ?? '').matchAll(/'([a-z_]+)'/g)].map((it) => it[1])
  expect(inDatabase.sort()).toEqual(['abandoned', 'claimed', 'needs_review', 'queued', 'rejected', 'sending', 'sent'])
  expect([...states].sort()).toEqual(inDatabase)
  expect([...statuses].sort()).toEqual([...inDatabase, 'bounced', 'delivered'].sort())
})

test('status and needs_review follow from the state and the facts alone', async () => {
  const facts = {
    none: {},
    delivered: { delivered_at: new Date() },
    complained: { complained_at: new Date() },
    hard: { bounced_at: new Date(), bounce_kind: 'hard' },
    unknown: { bounced_at: new Date(), bounce_kind: 'unknown' },
    soft: { bounced_at: new Date(), bounce_kind: 'soft' },
    'soft and delivered': { bounced_at: new Date(), bounce_kind: 'soft', delivered_at: new Date() },
    'hard and delivered': { bounced_at: new Date(), bounce_kind: 'hard', delivered_at: new Date() },
    'unknown and delivered': { bounced_at: new Date(), bounce_kind: 'unknown', delivered_at: new Date() },
  }
  for (const state of states)
    for (const [name, columns] of Object.entries(facts)) await insertSend(pool, `${state}:${name}`, { state, ...columns })

  const { rows } = await pool.query<{ dedupe_key: string; status: string; needs_review: boolean }>(
    'select dedupe_key, status, needs_review from email_sends',
  )

  const ofSent: Record<string, string> = {
    none: 'sent',
    delivered: 'delivered',
    complained: 'sent',
    hard: 'bounced',
    unknown: 'bounced',
    soft: 'sent',
    'soft and delivered': 'delivered',
    'hard and delivered': 'bounced',
    'unknown and delivered': 'bounced',
  }
  expect(rows).toHaveLength(63)
  for (const { dedupe_key, status, needs_review } of rows) {
    const [state = '', fact = ''] = dedupe_key.split(':')
    expect([dedupe_key, status]).toEqual([dedupe_key, state === 'sent' ? ofSent[fact] : state])
    expect([dedupe_key, needs_review]).toEqual([dedupe_key, state === 'needs_review'])
  }
})

test('a bounce has a kind, a claim has a token, and what was sent has a time', async () => {
  const refused = (columns: object) =>
    insertSend(pool, 'k', { ...columns }).catch((error: { constraint: string }) => error.constraint)

  expect(await refused({ bounced_at: new Date() })).toBe('email_sends_bounce')
  expect(await refused({ bounce_kind: 'hard' })).toBe('email_sends_bounce')
  expect(await refused({ bounced_at: new Date(), bounce_kind: 'odd' })).toBe('email_sends_bounce_kind')
  expect(await refused({ state: 'claimed', claim_token: null })).toBe('email_sends_claimed')
  expect(await refused({ state: 'sending', claimed_at: null })).toBe('email_sends_claimed')
  expect(await refused({ state: 'sent', completed_at: null })).toBe('email_sends_completed')
  expect(await refused({ state: 'gone' })).toBe('email_sends_state')
})

test('no file outside src/sends writes email_sends', () => {
  const root = join(import.meta.dirname, '../src')
  const files = readdirSync(root, { recursive: true, encoding: 'utf8' }).filter((file) => file.endsWith('.ts'))
  const writes = /\b(?:insert\s+into|update|delete\s+from|merge\s+into|truncate(?:\s+table)?|copy)\s+(?:only\s+)?"?email_sends\b/i

  const writers = files.filter((file) => writes.test(readFileSync(join(root, file), 'utf8')))

  expect(writers.sort()).toEqual([
    'sends/decide.ts',
    'sends/join.ts',
    'sends/policies.ts',
    'sends/record.ts',
    'sends/send-once.ts',
    'sends/sweeps.ts',
    'sends/trigger.ts',
  ])
})
