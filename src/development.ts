import { readFileSync } from 'node:fs'
import type { Config } from './config.ts'
import type { SandboxPanel } from './ops/page/sandbox-panel.ts'
import type { Settings } from './settings.ts'

/** The panel of the email sandbox where one runs; else nothing of it is loaded. */
export async function openSandboxPanel(
  { sandboxUrl, production, testKeysPath }: Pick<Settings, 'sandboxUrl' | 'production' | 'testKeysPath'>,
  config: () => Config,
  serviceUrl: () => string,
): Promise<SandboxPanel | undefined> {
  if (sandboxUrl === undefined || production) return undefined
  const { createPanel, readPrivateKeys } = await import('./sandbox/panel.ts')
  return createPanel({
    sandboxUrl,
    serviceUrl,
    source: () => sampledSource(config()),
    ...(testKeysPath !== undefined && { privateKeys: readPrivateKeys(readFileSync(testKeysPath, 'utf8')) }),
  })
}

/** The source whose events the panel makes: the first that a rule wants something of. */
function sampledSource({ rules, sources }: Config) {
  for (const { source: name, types } of rules) {
    const source = sources.get(name)
    const [type, otherType] = types
    if (source && type !== undefined)
      return {
        name,
        type,
        otherType,
        provider: source.provider.name,
        options: source.options,
        secret: source.secrets[0] ?? '',
        mode: source.mode,
      }
  }
  return undefined
}
