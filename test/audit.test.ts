import { describe, expect, test } from 'vitest'
import { listAudit } from '../src/ops/audit-queries.ts'
import { auditFilter } from '../src/ops/filters.ts'
import { testDatabase } from './support/database.ts'

const { pool } = await testDatabase()

await pool.query(`insert into audit_log (at, actor, via, action, subject, reason, before, after) values
  ('2026-11-29T10:00:00Z', 'person:mia', 'page', 'sent', 'send:a', 'seen in the log', '{"state": "needs_review"}', '{"state": "sent"}'),
  ('2026-11-29T11:00:00.000001Z', 'token:ci', 'api', 'replay', 'event:7', null, null, null),
  ('2026-11-29T11:00:00.000001Z', 'person:mia', 'page', 'set_role', 'person:bob', null, null, null),
  ('2026-11-29T11:00:00.000002Z', 'root', 'cli', 'sent', 'send:b', 'customer says', null, null)`)

const now = () => new Date('2026-11-29T12:00:00Z')
const list = (query: Record<string, string>) => listAudit(pool, auditFilter(now).parse(query))
const subjects = async (query: Record<string, string>) => (await list(query)).audit.map((row) => row.subject)

describe('the audit', () => {
  test('a row says who, when, what, why, before and after', async () => {
    expect((await list({ subject: 'send:a' })).audit).toEqual([
      {
        id: expect.any(String),
        at: new Date('2026-11-29T10:00:00Z'),
        actor: 'person:mia',
        via: 'page',
        action: 'sent',
        subject: 'send:a',
        reason: 'seen in the log',
        before: { state: 'needs_review' },
        after: { state: 'sent' },
      },
    ])
  })

  test('is filtered by actor, action, subject and time, also by several at once', async () => {
    expect(await subjects({})).toEqual(['send:b', 'person:bob', 'event:7', 'send:a'])
    expect(await subjects({ actor: 'person:mia' })).toEqual(['person:bob', 'send:a'])
    expect(await subjects({ action: 'sent' })).toEqual(['send:b', 'send:a'])
    expect(await subjects({ since: '90m' })).toEqual(['send:b', 'person:bob', 'event:7'])
    expect(await subjects({ until: '2026-11-29T11:00:00Z' })).toEqual(['send:a'])
    expect(await subjects({ actor: 'person:mia', action: 'sent', since: '2026-11-29T11:00:00Z' })).toEqual([])
  })

  test('is read page by page, each row once, also among rows of the same microsecond', async () => {
    const seen: string[] = []
    let cursor: string | null = null
    do {
      const page: Awaited<ReturnType<typeof list>> = await list({ limit: '1', ...(cursor !== null && { cursor }) })
      seen.push(...page.audit.map((row) => row.subject))
      cursor = page.next_cursor
    } while (cursor !== null)

    expect(seen).toEqual(['send:b', 'person:bob', 'event:7', 'send:a'])
  })
})

test('each filter of a large audit is read from an index', async () => {
  await pool.query(`insert into audit_log (at, actor, via, action, subject)
    select now() - n * interval '1 second', 'person:' || n % 500, 'page', 'action' || n % 500, 'send:' || n from generate_series(1, 20000) n`)
  await pool.query('analyze audit_log')
  const planOf = async (condition: string) => {
    const { rows } = await pool.query(
      `explain (costs off) select * from audit_log where ${condition} order by at desc, id desc limit 51`,
    )
    return rows.map((row) => row['QUERY PLAN']).join('\n')
  }

  for (const condition of [
    'true',
    `actor = 'person:7'`,
    `action = 'action7'`,
    `subject = 'send:7'`,
    `at < now() - interval '5 hours'`,
  ])
    expect(await planOf(condition), condition).not.toContain('Seq Scan')
})
