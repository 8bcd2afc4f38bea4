import type { CommandResult } from '../cli.ts'
import { faultPresets } from '../sandbox/presets.ts'
import type { Settings } from '../settings.ts'
import { visible } from './output.ts'

/**
 * Has the email sandbox of this folder's `oncehook start` fail its next call, or its next call for this recipient. Answers why it
 * didn't; undefined when it is armed.
 */
export async function armFault(
  name: string,
  { settings, to }: { settings: Pick<Settings, 'production' | 'inboxiliBaseUrl'>; to?: string },
): Promise<CommandResult | undefined> {
  const refusal = (text: string, exitCode: 1 | 2) => ({ stdout: '', stderr: `oncehook: --fault: ${text}\n`, exitCode })
  if (settings.production) return refusal('only for development', 2)
  if (name === 'list') return { stdout: listText(), stderr: '', exitCode: 0 }
  const known = faultPresets.find((preset) => preset.name === name)
  if (!known)
    return refusal(`there is no "${visible(name)}"; there are ${faultPresets.map((preset) => preset.name).join(', ')}`, 2)
  const { inboxiliBaseUrl: base } = settings
  const isHere = ['127.0.0.1', 'localhost', '[::1]'].includes(URL.parse(base ?? '')?.hostname ?? '')
  if (base === undefined || !isHere) return refusal('no email sandbox runs here: npm start first', 1)
  const answer = await fetch(new URL('/_sandbox/faults', base), {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ faults: [known.fault], ...(to !== undefined && { to }) }),
    signal: AbortSignal.timeout(10_000),
  }).catch(() => undefined)
  return answer?.ok ? undefined : refusal(`the email sandbox ${answer ? `answers ${answer.status}` : "can't be reached"}`, 1)
}

function listText(): string {
  const width = Math.max(...faultPresets.map(({ name }) => name.length))
  return faultPresets.map(({ name, text }) => `${name.padEnd(width)}  ${text}\n`).join('')
}
