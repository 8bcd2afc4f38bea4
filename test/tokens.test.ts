import { describe, expect, test } from 'vitest'
import { createTokenCommand } from '../src/cli/token.ts'
import { authenticate, createToken, ensureToken } from '../src/ops/tokens.ts'
import { testDatabase } from './support/database.ts'

const { pool } = await testDatabase()

const HOUR = 3_600_000

describe('making tokens', () => {
  test('I17 a new token names its bearer, and the database holds nothing that could be used as one', async () => {
    const token = await createToken(pool, { name: 'ci', role: 'sender' })

    expect(token).toMatch(/^och_[\w-]{43}$/)
    expect(await authenticate(pool, token)).toEqual({ name: 'ci', role: 'sender' })
    const { rows } = await pool.query(`select row_to_json(api_tokens)::text || coalesce(
      (select string_agg(row_to_json(audit_log)::text, '') from audit_log), '') as everything from api_tokens`)
    expect(rows.map((row) => row.everything).join()).not.toContain(token.slice(4))
  })

  test('I12 making a token leaves who made it, by which way, and what it may do', async () => {
    await createToken(pool, { name: 'audited', role: 'operator', actor: 'mia', via: 'cli' })

    const { rows } = await pool.query(
      `select actor, via, action, after ->> 'role' as role from audit_log where after ->> 'name' = 'audited'`,
    )
    expect(rows).toEqual([{ actor: 'mia', via: 'cli', action: 'create_token', role: 'operator' }])
  })

  test('a fixed token that is ensured by many starts at once is one token and one line of audit', async () => {
    await Promise.all(Array.from({ length: 10 }, () => ensureToken(pool, 'och_fixed', { name: 'start', role: 'operator' })))

    expect(await authenticate(pool, 'och_fixed')).toEqual({ name: 'start', role: 'operator' })
    const { rows } = await pool.query(`select (select count(*) from api_tokens where name = 'start') as tokens,
      (select count(*) from audit_log where after ->> 'name' = 'start') as audits`)
    expect(rows).toEqual([{ tokens: '1', audits: '1' }])
  })

  test('a revoked token stays revoked when it is ensured again', async () => {
    await ensureToken(pool, 'och_revoked', { name: 'revoked', role: 'operator' })
    await pool.query(`update api_tokens set revoked_at = now() where name = 'revoked'`)

    await ensureToken(pool, 'och_revoked', { name: 'revoked', role: 'operator' })

    expect(await authenticate(pool, 'och_revoked')).toBeUndefined()
  })

  test('the command prints the token alone on one line', async () => {
    const { stdout, stderr, exitCode } = await createTokenCommand(pool, { role: 'reader', name: 'grafana' })

    expect({ stderr, exitCode }).toEqual({ stderr: '', exitCode: 0 })
    expect(stdout).toMatch(/^och_[\w-]{43}\n$/)
    expect(await authenticate(pool, stdout.trim())).toEqual({ name: 'grafana', role: 'reader' })
  })

  test('the command makes no token for a role that does not exist', async () => {
    const { stdout, stderr, exitCode } = await createTokenCommand(pool, { role: 'root', name: 'nobody' })

    expect({ stdout, exitCode }).toEqual({ stdout: '', exitCode: 2 })
    expect(stderr).toContain('--role')
    const { rows } = await pool.query(`select from api_tokens where name = 'nobody'`)
    expect(rows).toEqual([])
  })
})

describe('using tokens', () => {
  test('a token that is expired or unknown names nobody, and one that expires later still does', async () => {
    const expired = await createToken(pool, { name: 'old', role: 'reader', expiresAt: new Date(Date.now() - HOUR) })
    const expiring = await createToken(pool, { name: 'young', role: 'reader', expiresAt: new Date(Date.now() + HOUR) })

    expect(await authenticate(pool, expired)).toBeUndefined()
    expect(await authenticate(pool, 'och_unknown')).toBeUndefined()
    expect(await authenticate(pool, '')).toBeUndefined()
    expect(await authenticate(pool, expiring)).toEqual({ name: 'young', role: 'reader' })
  })

  test('a burst of uses writes the time of use once, and a use more than a minute later writes it again', async () => {
    const token = await createToken(pool, { name: 'busy', role: 'reader' })
    // The row's version in the heap: each write makes a new one.
    const written = async () => (await pool.query(`select xmin, last_used_at from api_tokens where name = 'busy'`)).rows[0]

    await authenticate(pool, token)
    const first = await written()
    await Promise.all(Array.from({ length: 10 }, () => authenticate(pool, token)))
    const second = await written()
    await pool.query(`update api_tokens set last_used_at = now() - interval '61 s' where name = 'busy'`)
    await authenticate(pool, token)
    const third = await written()

    expect(first.last_used_at).toBeInstanceOf(Date)
    expect(second).toEqual(first)
    expect(third.last_used_at.getTime()).toBeGreaterThanOrEqual(first.last_used_at.getTime())
  })
})
