# Completes commands and options of vinery in bash and zsh. `vinery completion` fills in the words.
[ -z "${ZSH_VERSION-}" ] || { autoload -U +X compinit bashcompinit && compinit && bashcompinit; }
_vinery_words() {
  case "$1" in
    # words
  esac
}
_vinery() {
  local at="" word number=0 words
  for word in "${COMP_WORDS[@]}"; do
    [ "$number" -lt "$COMP_CWORD" ] || break
    words=" $(_vinery_words "$at") "
    case "$number $word" in
      0* | *" -"*) ;;
      *) case "$words" in *" $word "*) at="$at $word" ;; esac ;;
    esac
    number=$((number + 1))
  done
  COMPREPLY=($(compgen -W "$(_vinery_words "$at")" -- "$word"))
}
complete -o default -F _vinery vinery
