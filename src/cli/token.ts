import { userInfo } from 'node:os'
import { z } from 'zod'
import type { CommandResult } from '../cli.ts'
import type { Db } from '../db.ts'
import { problemsOf } from '../ops/filters.ts'
import { createToken, roles } from '../ops/tokens.ts'
import { usageError } from './output.ts'

const optionsSchema = z.object({
  role: z.enum(roles),
  name: z
    .string()
    .trim()
    .min(1)
    .max(200)
    .refine((name) => !/\p{Cc}/u.test(name) && name.isWellFormed(), 'must not contain control characters'),
})

/** `oncehook token create`: the token alone on stdout, on one line. It can't be shown again. */
export async function createTokenCommand(
  db: Db,
  options: { role: string; name: string; by?: string | undefined },
): Promise<CommandResult> {
  const parsed = optionsSchema.safeParse(options)
  if (!parsed.success) return usageError(problemsOf(parsed.error))
  const token = await createToken(db, { ...parsed.data, actor: options.by ?? systemUser(), via: 'cli' })
  return { stdout: `${token}\n`, stderr: '', exitCode: 0 }
}

function systemUser(): string {
  try {
    return userInfo().username
  } catch {
    // In a container the process may run under a number that no user has.
    return `uid ${process.getuid?.()}`
  }
}
